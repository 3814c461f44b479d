"""What happened to an engine's cache or its stream, as far as a capture shows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(slots=True)
class Wipe:
    """All that an engine held became void, by a clear or by a restart.

    An engine tells of it with its next batch only: the wipe was at some moment behind ``after``,
    its batch before, and ``at``, the batch that told. ``after`` is None where the capture has no
    batch before, ``at`` where none came since (a restart that only a mark tells of). ``received``
    is our clock. ``entries`` is how many the index held from before: stale from the wipe on,
    until it was told. ``inside`` says that blocks were stored in front of the clear, in its own
    batch: then the wipe was between two steps of a working engine. ``late`` is by how much longer
    the batch took to us than the fastest before it, in seconds.
    """

    kind: Literal["clear", "restart"]
    pod: str
    rank: int
    seq: int | None
    after: float | None
    at: float | None
    received: float
    entries: int
    inside: bool = False
    late: float = 0.0
    reason: str = ""

    @property
    def window(self) -> float | None:
        """Seconds for which the entries were stale at most; None where that is not known."""
        if self.after is None or self.at is None:
            return None
        return max(0.0, self.at - self.after)

    @property
    def moment(self) -> float:
        """When it was told: ``at``, or else when we heard of it."""
        return self.received if self.at is None else self.at

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; what is not known is absent."""
        told = {
            "type": self.kind,
            "pod": self.pod,
            "rank": self.rank,
            "seq": self.seq,
            "after": self.after,
            "at": self.at,
            "received": self.received,
            "entries": self.entries,
            "window_s": self.window,
            "late_s": round(self.late, 6) or None,
            "reason": self.reason or None,
        }
        return {name: value for name, value in told.items() if value is not None}


@dataclass(slots=True)
class Loss:
    """Batches that did not arrive in their turn, between the batches of ``after`` and ``before``.

    ``cold`` is a beginning that was not recorded: nothing of before was in the index either.
    """

    pod: str
    rank: int
    from_seq: int
    to_seq: int
    recovered: bool
    cold: bool
    reason: str
    after: float | None
    received: float
    before: float | None = None

    @property
    def missing(self) -> int:
        """How many batches."""
        return self.to_seq - self.from_seq + 1

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; what is not known is absent."""
        told = {
            "pod": self.pod,
            "rank": self.rank,
            "from_seq": self.from_seq,
            "to_seq": self.to_seq,
            "recovered": self.recovered,
            "cold_start": self.cold,
            "reason": self.reason,
            "after": self.after,
            "before": self.before,
            "received": self.received,
        }
        return {name: value for name, value in told.items() if value is not None}


@dataclass(slots=True)
class Doubt:
    """From a loss on, what an engine was believed to hold may be gone: a clear may be among it.

    ``entries`` were held at the loss; ``gaps`` and ``missing`` (batches) add up all losses since.
    ``settled`` is when a clear or a restart made an end of it, None if none did; then ``left`` of
    the entries were still there when the capture ended. ``again`` counts blocks that were stored
    anew although the index held them, in ``again_in`` batches.
    """

    pod: str
    rank: int
    begin: float
    entries: int
    gaps: int = 0
    missing: int = 0
    settled: float | None = None
    settled_by: str = ""
    left: int = 0
    again: int = 0
    again_in: int = 0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; what is not known is absent."""
        told: dict[str, Any] = {
            "pod": self.pod,
            "rank": self.rank,
            "begin": self.begin,
            "entries": self.entries,
            "gaps": self.gaps,
            "missing": self.missing,
            "stored_again": self.again,
        }
        if self.settled is None:
            return told | {"left": self.left}
        return told | {"settled": self.settled, "settled_by": self.settled_by}


@dataclass(slots=True)
class Again:
    """A batch that stored ``blocks`` blocks anew although the index held them, without a gap
    that would tell why."""

    pod: str
    rank: int
    seq: int
    after: float | None
    at: float
    blocks: int

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "pod": self.pod,
            "rank": self.rank,
            "seq": self.seq,
            "at": self.at,
            "blocks": self.blocks,
        }


@dataclass(slots=True)
class Lane:
    """One engine (pod, DP rank) over the time of the report.

    ``before`` is how many entries it had when the report's time began, ``entries`` how many now.
    ``first`` and ``last`` are its first and last batch, ``last_received`` the last by our clock.
    ``lost`` counts missing batches, those before the capture's first left out, ``strange`` removed
    blocks that the index did not hold. ``offset`` is the least that our clock was ahead of the
    engine's when a batch came: the way to us and the difference of the clocks together.
    """

    pod: str
    rank: int
    before: int = 0
    entries: int = 0
    peak: int = 0
    peak_at: float | None = None
    batches: int = 0
    events: int = 0
    blocks_stored: int = 0
    clears: int = 0
    restarts: int = 0
    lost: int = 0
    strange: int = 0
    undecodable: int = 0
    first: float | None = None
    last: float | None = None
    last_received: float | None = None
    offset: float | None = None
    doubt: Doubt | None = None
    waiting: list[Loss | Wipe] = field(default_factory=list)
    """Losses and restarts for which the next batch is the other end."""
