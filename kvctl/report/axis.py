"""Axes: where a value is on a chart, and the round values to mark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, floor, log10

_TIME_STEPS = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600,
    900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000, 31536000,
)  # fmt: skip


@dataclass(frozen=True)
class TimeAxis:
    """``begin`` to ``end`` (seconds since the epoch) from ``left`` to ``right``.

    An empty span is widened: something always is in the middle of it.
    """

    begin: float
    end: float
    left: float
    right: float

    @classmethod
    def over(cls, begin: float, end: float, left: float, right: float) -> TimeAxis:
        """An axis of at least a hundredth of a second."""
        short = 0.01 - (end - begin)
        if short > 0:
            begin, end = begin - short / 2, end + short / 2
        return cls(begin, end, left, right)

    def x(self, moment: float) -> float:
        """The place of a moment, at the nearer edge for one outside."""
        share = (moment - self.begin) / (self.end - self.begin)
        return self.left + min(1.0, max(0.0, share)) * (self.right - self.left)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Round moments, at most about so many, with their labels (UTC)."""
        span = self.end - self.begin
        step = next((each for each in _TIME_STEPS if span / each <= most), span / most)
        first, last = ceil(self.begin / step), floor(self.end / step)
        return [(place * step, _label(place * step, step)) for place in range(first, last + 1)]


@dataclass(frozen=True)
class ValueAxis:
    """0 at ``bottom`` to ``top_value`` at ``top``."""

    top_value: float
    bottom: float
    top: float

    def y(self, value: float) -> float:
        """The place of a value."""
        share = value / self.top_value if self.top_value else 0.0
        return self.bottom - share * (self.bottom - self.top)

    def ticks(self, most: int) -> Iterator[float]:
        """Round values above 0, at most so many."""
        if self.top_value <= 0:
            return
        step = round_up(self.top_value / most)
        value = step
        while value <= self.top_value * 1.0001:
            yield value
            value += step


def round_up(value: float) -> float:
    """The next of 1, 2, 5, 10, 20, 50, … (and of 0.5, 0.2, 0.1, …) that is not less."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * 0.9999)


def short(value: float) -> str:
    """`0.5`, `62`, `1.2k`, `3M`: a value beside an axis."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            divisor = 1e3 if unit == "k" else size
            return f"{value / divisor:.3g}{unit}"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def _label(moment: float, step: float) -> str:
    if step < 1:
        digits = next(count for count in (1, 2, 3) if step >= 10**-count * 0.99)
        units = round(moment * 10**digits)
        whole, part = divmod(units, 10**digits)
        return f"{_utc(whole):%H:%M:%S}.{part:0{digits}}"
    if step < 60:
        return f"{_utc(moment):%H:%M:%S}"
    if step < 43200:
        return f"{_utc(moment):%H:%M}"
    return f"{_utc(moment):%Y-%m-%d}" if step >= 86400 else f"{_utc(moment):%m-%d %H:%M}"


def _utc(moment: float) -> datetime:
    return datetime.fromtimestamp(min(moment, 253_402_300_799), UTC)
