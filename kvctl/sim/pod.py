"""A simulated pod: the engine with its HTTP side, started and stopped as one."""

from __future__ import annotations

import threading

from kvctl.sim.config import SimConfig
from kvctl.sim.engine import SimulatedEngine
from kvctl.sim.http import HttpSide


class SimPod:
    """Runs from its making to `close`. ``api``, ``events`` and ``replay`` are as bound.

    Raises `KvctlError` for a port that cannot be bound.
    """

    def __init__(self, config: SimConfig | None = None) -> None:
        self.config = config or SimConfig()
        self.engine = SimulatedEngine(self.config)
        self._lock = threading.Lock()
        self._dead = False
        try:
            self._http = HttpSide(self.engine, self.close)
        except BaseException:
            self.engine.close()
            raise
        self.api = self._http.url

    def __enter__(self) -> SimPod:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """The pod's name."""
        return self.config.name

    @property
    def events(self) -> list[str]:
        """Each rank's event endpoint."""
        return self.engine.events

    @property
    def replay(self) -> list[str]:
        """Each rank's replay endpoint."""
        return self.engine.replay

    def close(self) -> None:
        """Die: every port closes at once. May be called again."""
        with self._lock:
            if self._dead:
                return
            self._dead = True
        self.engine.close()
        self._http.close()
