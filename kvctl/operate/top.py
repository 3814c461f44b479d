"""A fleet as it goes: rates, entries and states per DP rank, look by look."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from kvctl.engine import EngineState, PodState, probe_state
from kvctl.events import AllBlocksCleared, Batch, BlockRemoved, BlockStored
from kvctl.fleet import Pod
from kvctl.index import NameIndex
from kvctl.operate.sources import engine_client, stream_sources
from kvctl.stream import StreamReader, StreamStatus

_WORKERS = 16
_READ_S = 0.1


@dataclass(frozen=True)
class TopRow:
    """One DP rank at one look. Rates are per second since the look before; ``last_clear`` is how
    many seconds ago the last clear came, by our clock. None where it is not known."""

    pod: str
    rank: int
    state: str
    events: float
    stored: float
    removed: float
    entries: int
    capacity: int | None
    missing: int
    last_clear: float | None
    hit_rate: float | None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; what is not known is absent."""
        told = {
            "pod": self.pod,
            "rank": self.rank,
            "state": self.state,
            "events_per_s": round(self.events, 1),
            "stored_per_s": round(self.stored, 1),
            "removed_per_s": round(self.removed, 1),
            "entries": self.entries,
            "capacity": self.capacity,
            "missing": self.missing,
            "last_clear_s": None if self.last_clear is None else round(self.last_clear, 1),
            "hit_rate": None if self.hit_rate is None else round(self.hit_rate, 4),
        }
        return {name: value for name, value in told.items() if value is not None}


@dataclass
class _Counts:
    events: int = 0
    stored: int = 0
    removed: int = 0
    last_clear: float | None = None


class FleetWatch:
    """The streams of some pods and their engines' states, looked at again and again.

    Engines are asked in the background: one that does not answer holds nothing up.
    """

    def __init__(self, pods: Sequence[Pod], *, api_key: str | None, timeout: float) -> None:
        self._pods = list(pods)
        self._api_key = api_key
        self._timeout = timeout
        self._index = NameIndex()
        self._counts: dict[tuple[str, int], _Counts] = {}
        self._states: dict[str, PodState] = {}
        self._asked: dict[str, Future[PodState]] = {}
        self._hits: dict[tuple[str, int], tuple[int, int, float | None]] = {}
        self._looked = time.monotonic()
        self._workers = ThreadPoolExecutor(_WORKERS)
        self._reader = StreamReader(
            [source for pod in pods for source in stream_sources(pod)], tokens=False
        )

    def __enter__(self) -> FleetWatch:
        return self

    def __exit__(self, *exc: object) -> None:
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._reader.__exit__(*exc)

    def look(self, seconds: float) -> list[TopRow]:
        """Take events in for so long, then tell how everything stands."""
        for pod in self._pods:
            self._ask(pod)
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._take_in(min(_READ_S, left))
        self._take_in(0.0)
        for name, answer in list(self._asked.items()):
            if answer.done():
                self._states[name] = answer.result()
                del self._asked[name]
        now = time.monotonic()
        rows = self._rows(now - self._looked)
        self._looked = now
        for counts in self._counts.values():
            counts.events = counts.stored = counts.removed = 0
        return rows

    def settle(self, timeout: float) -> None:
        """Wait for the streams' replays and the engines' first answers; what came is no rate."""
        for pod in self._pods:
            self._ask(pod)
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            self._take_in(_READ_S)
            if self._reader.settled() and all(each.done() for each in self._asked.values()):
                break
        for counts in self._counts.values():
            counts.events = counts.stored = counts.removed = 0
        self._looked = time.monotonic()

    def _ask(self, pod: Pod) -> None:
        if pod.api is None or pod.name in self._asked:
            return
        client = engine_client(pod, api_key=self._api_key, timeout=self._timeout)
        ranks = [stream.rank for stream in pod.streams]
        before = self._states.get(pod.name)
        self._asked[pod.name] = self._workers.submit(
            lambda: probe_state(client, before, ranks=ranks)
        )

    def _take_in(self, timeout: float) -> None:
        for record in self._reader.read(timeout):
            self._index.apply(record)
            if isinstance(record, Batch):
                key = (record.wire.pod, record.wire.rank)
                counts = self._counts.setdefault(key, _Counts())
                for event in record.events.events:
                    counts.events += 1
                    if isinstance(event, BlockStored):
                        counts.stored += len(event.block_hashes)
                    elif isinstance(event, BlockRemoved):
                        counts.removed += len(event.block_hashes)
                    elif isinstance(event, AllBlocksCleared):
                        counts.last_clear = record.events.ts

    def _rows(self, seconds: float) -> list[TopRow]:
        statuses = {(status.pod, status.rank): status for status in self._reader.statuses()}
        rows = []
        for pod in self._pods:
            state = self._states.get(pod.name)
            engines = {each.rank: each for each in state.states} if state is not None else {}
            ranks = {stream.rank for stream in pod.streams} | engines.keys()
            ranks |= {rank for name, rank in statuses if name == pod.name}
            for rank in sorted(ranks):
                key = (pod.name, rank)
                rows.append(self._row(key, engines.get(rank), statuses.get(key), seconds))
        return rows

    def _row(
        self,
        key: tuple[str, int],
        engine: EngineState | None,
        status: StreamStatus | None,
        seconds: float,
    ) -> TopRow:
        counts = self._counts.get(key, _Counts())
        blocks = engine.num_gpu_blocks if engine is not None else None
        return TopRow(
            *key,
            "unknown" if engine is None else engine.verdict.value,
            counts.events / seconds,
            counts.stored / seconds,
            counts.removed / seconds,
            self._index.entries_in(*key),
            None if blocks is None else blocks - 1,
            0 if status is None else status.missing,
            None if counts.last_clear is None else max(0.0, time.time() - counts.last_clear),
            self._hit_rate(key, engine),
        )

    def _hit_rate(self, key: tuple[str, int], engine: EngineState | None) -> float | None:
        """The share of tokens hit since the last look that saw any asked for."""
        if engine is None or engine.prefix_queries is None or engine.prefix_hits is None:
            return None
        queries, hits, rate = self._hits.get(key, (0, 0, None))
        asked = engine.prefix_queries - queries
        if asked < 0:  # a new life
            asked, hits = engine.prefix_queries, 0
        if asked:
            rate = (engine.prefix_hits - hits) / asked
            self._hits[key] = (engine.prefix_queries, engine.prefix_hits, rate)
        return rate
