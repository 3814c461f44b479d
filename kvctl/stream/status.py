"""How a stream is doing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

ReplayState: TypeAlias = Literal["none", "asking", "ok", "incomplete", "silent"]
"""`none`: there is no replay endpoint. `silent`: it never answered. `incomplete`: not whole."""


@dataclass(slots=True)
class StreamCounts:
    """What passed through one stream since the start.

    ``gaps`` and ``missing`` (batches) are what stayed lost, ``recovered`` the batches that the
    replay brought in place of lost ones. ``duplicates`` and ``late`` were dropped: seen before,
    or come when their place was past.
    """

    batches: int = 0
    gaps: int = 0
    missing: int = 0
    recovered: int = 0
    restarts: int = 0
    duplicates: int = 0
    late: int = 0
    undecodable: int = 0


@dataclass(frozen=True)
class StreamStatus:
    """One stream as it is now. Counts since the start, as in `StreamCounts`.

    ``connected`` and ``replay`` are the endpoint's. ``last_batch_ns`` is our clock when the last
    live batch came, nanoseconds since the epoch. ``held``: received, but not yet given out.
    """

    pod: str
    rank: int
    endpoint: str
    connected: bool
    replay: ReplayState
    last_seq: int | None
    batches: int
    gaps: int
    missing: int
    restarts: int
    undecodable: int
    duplicates: int
    last_batch_ns: int | None
    recovered: int = 0
    late: int = 0
    held: int = 0
