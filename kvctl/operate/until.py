"""Where a replay stops."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite

from kvctl.errors import UsageError
from kvctl.events import Batch, Gap, Record, Restart, Undecodable

# Numbers from here on are seconds since the epoch (2001), below they are seqs.
_EPOCH_FROM = 1_000_000_000


@dataclass(frozen=True)
class Until:
    """The last seq of each stream's life, or the last moment (engine clock), that still counts."""

    seq: int | None = None
    time: float | None = None

    def admits(self, record: Record) -> bool:
        """Whether the record lies before the stop."""
        if isinstance(record, (Gap, Restart)):
            if self.seq is not None:
                return not isinstance(record, Gap) or record.from_seq <= self.seq
            return self.time is None or record.recv_ns / 1e9 <= self.time
        if isinstance(record, Batch):
            if self.seq is not None:
                return record.wire.seq <= self.seq
            return self.time is None or record.events.ts <= self.time
        if isinstance(record, Undecodable):
            if self.seq is not None:
                return record.wire.seq <= self.seq
            return self.time is None or record.wire.recv_ns / 1e9 <= self.time
        return True


def parse_until(text: str) -> Until:
    """`61` is a seq; `1796108653.9` (or any number from 10^9) and ISO 8601 text are a time.

    ISO text without a zone means UTC. Raises `UsageError` for anything else.
    """
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        if text.isdecimal() and number < _EPOCH_FROM:
            return Until(seq=int(text))
        if number >= _EPOCH_FROM:
            return Until(time=number)
    try:
        return Until(time=_moment(text))
    except ValueError:
        raise UsageError(
            f"--until {text!r} is neither a seq nor a time",
            remedy="give a seq like 61, seconds since the epoch, or 2026-11-30T12:00:00Z",
        ) from None


def parse_time(option: str, text: str) -> float:
    """Seconds since the epoch from such a number or from ISO 8601 text (without a zone: UTC).

    Raises `UsageError` that names the option for anything else.
    """
    try:
        number = float(text)
        if number >= _EPOCH_FROM and isfinite(number):
            return number
    except ValueError:
        pass
    try:
        return _moment(text)
    except ValueError:
        raise UsageError(
            f"{option} {text!r} is no time",
            remedy="give seconds since the epoch, or 2026-11-30T12:00:00Z",
        ) from None


def _moment(text: str) -> float:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()
