"""What a simulated engine is like."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from kvctl.errors import UsageError
from kvctl.events import WireForm, wire_form

PORTS_PER_POD = 10
MAX_RANKS = 4


@dataclass(frozen=True)
class SimConfig:
    """One pod. Ports 0 are chosen free; ranks beyond the first have the ports behind.

    ``blocks`` is the engine's `num_gpu_blocks`, one of which is its null block. ``wire`` is the
    vLLM version it behaves as. ``dev_mode`` False takes its control endpoints away. ``lossy``
    keeps libzmq's default high-water mark on the replay, as vLLM to 0.32 does: a slow reader
    loses answers.
    """

    name: str = "pod-a"
    model: str = "tiny"
    loras: tuple[str, ...] = ()
    blocks: int = 64
    block_size: int = 16
    wire: str = "0.32"
    ranks: int = 1
    http_port: int = 0
    events_port: int = 0
    replay_port: int = 0
    int_hashes: bool = True
    api_key: str | None = None
    dev_mode: bool = True
    buffer_steps: int = 10_000
    lossy: bool = False
    step_s: float = 0.0

    def __post_init__(self) -> None:
        if self.blocks < 2:
            raise UsageError(f"{self.blocks} blocks are too few", remedy="at least 2")
        if self.block_size < 1:
            raise UsageError(f"a block size of {self.block_size} makes no block")
        if not 1 <= self.ranks <= MAX_RANKS:
            raise UsageError(f"{self.ranks} ranks", remedy=f"1 to {MAX_RANKS}")
        wire_form(self.wire)

    @property
    def topic(self) -> bytes:
        """The topic of its events, by llm-d's convention."""
        return f"kv@{self.name}@{self.model}".encode()

    @cached_property
    def form(self) -> WireForm:
        """How its version writes events."""
        return wire_form(self.wire)

    @cached_property
    def version(self) -> tuple[int, ...]:
        """Its version, to compare."""
        return tuple(map(int, self.wire.lstrip("v").split(".")))

    def at_ports(self, base: int) -> SimConfig:
        """The same pod on fixed ports: API ``base``, events from ``base`` + 1, replay from + 5."""
        from dataclasses import replace

        return replace(self, http_port=base, events_port=base + 1, replay_port=base + 1 + MAX_RANKS)
