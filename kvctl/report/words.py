"""Times, spans and names as a report words them."""

from __future__ import annotations

from datetime import UTC, datetime

from kvctl.text import plural, printable

_MOST_NAME = 120


def clock(moment: float | None) -> str:
    """`2026-12-01 06:57:33.981 UTC`; `?` for no time."""
    if moment is None:
        return "?"
    return _moment(moment).strftime("%Y-%m-%d %H:%M:%S.") + f"{_milliseconds(moment):03} UTC"


def hour(moment: float | None) -> str:
    """`06:57:33.981`, the time of day (UTC)."""
    if moment is None:
        return "?"
    return _moment(moment).strftime("%H:%M:%S.") + f"{_milliseconds(moment):03}"


def seconds(span: float) -> str:
    """`0.35 s`, `8.1 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if span < 1:
        return f"{span:.2g} s" if span >= 0.001 else "less than 1 ms"
    if span < 60:
        return f"{span:.1f} s"
    whole = round(span)
    for unit, size, lower, lower_size in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if whole >= size:
            rest = whole % size // lower_size
            return f"{whole // size} {unit}" + (f" {rest} {lower}" if rest else "")
    return f"{whole} s"


def span(begin: float, end: float) -> str:
    """`2026-12-01 06:57:33.981 UTC to … (6.9 s)`."""
    return f"{clock(begin)} to {clock(end)} ({seconds(end - begin)})"


def name(text: str) -> str:
    """A name off the network: harmless, and not longer than a line."""
    shown = printable(text[: _MOST_NAME + 1])
    return shown if len(shown) <= _MOST_NAME else shown[: _MOST_NAME - 1] + "…"


def engine(pod: str, rank: int | None) -> str:
    """`pod-a`, `pod-b rank 1`."""
    return f"{name(pod)} rank {rank}" if rank else name(pod)


def entries(count: int) -> str:
    """`1 entry`, `62 entries`."""
    return plural(count, "entry")


def _milliseconds(moment: float) -> int:
    return int(moment % 1 * 1000)


def _moment(moment: float) -> datetime:
    return datetime.fromtimestamp(moment // 1, UTC)
