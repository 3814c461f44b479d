"""Counts over time in a bounded number of buckets, whatever the span turns out to be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

MOST_BUCKETS = 600
"""A chart a thousand points wide can show no more."""
_FINEST = 10
"""Buckets begin 2^-10 s wide."""


@dataclass(slots=True, kw_only=True)
class EventCounts:
    """Events by type."""

    stores: int = 0
    removes: int = 0
    clears: int = 0
    unknown: int = 0

    @property
    def events(self) -> int:
        """Events of all types."""
        return self.stores + self.removes + self.clears + self.unknown

    def add(self, other: EventCounts) -> None:
        """Take in those of another slice, or of another engine."""
        self.stores += other.stores
        self.removes += other.removes
        self.clears += other.clears
        self.unknown += other.unknown


@dataclass(slots=True, kw_only=True)
class Activity(EventCounts):
    """One engine in one slice of time.

    ``entries`` is the count at its end, ``low`` and ``high`` the extremes reached in it.
    """

    entries: int
    low: int
    high: int
    batches: int = 0

    def level(self, entries: int) -> None:
        """The count of entries is now this."""
        self.entries = entries
        self.low = min(self.low, entries)
        self.high = max(self.high, entries)

    def join(self, later: Activity) -> None:
        """Take in the slice that follows."""
        self.entries = later.entries
        self.low = min(self.low, later.low)
        self.high = max(self.high, later.high)
        self.batches += later.batches
        self.add(later)


Key = TypeVar("Key")


class Sampled(Generic[Key]):
    """A row of `Activity` per key, all on one grid of time.

    The width of a slice is a power of two (seconds) and doubles as often as needed to keep the
    whole span, over all keys, within `MOST_BUCKETS`.
    """

    def __init__(self) -> None:
        self._exponent = -_FINEST
        self._rows: dict[Key, dict[int, Activity]] = {}
        self._first: int | None = None
        self._last = 0

    @property
    def width(self) -> float:
        """Seconds in a slice."""
        return float(2.0**self._exponent)

    @property
    def count(self) -> int:
        """Slices from the first to the last that holds anything."""
        return 0 if self._first is None else self._last - self._first + 1

    @property
    def begin(self) -> float:
        """When the first slice begins, seconds since the epoch."""
        return (self._first or 0) * self.width

    @property
    def end(self) -> float:
        """When the last slice ends."""
        return self.begin + self.count * self.width

    def at(self, key: Key, moment: float, entries: int) -> Activity:
        """The slice of that moment; ``entries`` is the count before it where it is new."""
        place = int(moment // self.width)
        if self._first is None:
            self._first = self._last = place
        elif not self._first <= place <= self._last:
            self._first, self._last = min(self._first, place), max(self._last, place)
            doublings = 0
            while (self._last >> doublings) - (self._first >> doublings) >= MOST_BUCKETS:
                doublings += 1
            if doublings:
                self._widen(doublings)
                place >>= doublings
        row = self._rows.setdefault(key, {})
        found = row.get(place)
        if found is None:
            found = row[place] = Activity(entries=entries, low=entries, high=entries)
        return found

    def row(self, key: Key) -> list[Activity | None]:
        """Every slice of a key from the first of all to the last of all, None where it is idle."""
        row = self._rows.get(key, {})
        first = self._first or 0
        return [row.get(first + number) for number in range(self.count)]

    def __iter__(self) -> Iterator[Key]:
        """The keys there are, in order of appearance."""
        return iter(self._rows)

    def _widen(self, doublings: int) -> None:
        assert self._first is not None
        self._exponent += doublings
        self._first >>= doublings
        self._last >>= doublings
        for key, row in self._rows.items():
            wide: dict[int, Activity] = {}
            for place in sorted(row):
                there = wide.setdefault(place >> doublings, row[place])
                if there is not row[place]:
                    there.join(row[place])
            self._rows[key] = wide
