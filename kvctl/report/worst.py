"""The heaviest of many, so that what is kept stays bounded."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappush, heappushpop
from typing import Generic, TypeVar

T = TypeVar("T")


class Worst(Generic[T]):
    """Keeps the ``most`` heaviest of what is added, of equals the first, in order of arrival.

    ``total`` counts all.
    """

    def __init__(self, most: int) -> None:
        self.total = 0
        self._most = most
        self._heap: list[tuple[float, int, T]] = []

    def add(self, item: T, weight: float = 0.0) -> None:
        """Add one."""
        self.total += 1
        entry = (weight, -self.total, item)
        if len(self._heap) < self._most:
            heappush(self._heap, entry)
        else:
            heappushpop(self._heap, entry)

    def __iter__(self) -> Iterator[T]:
        for _weight, _number, item in sorted(self._heap, key=lambda entry: -entry[1]):
            yield item

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def left_out(self) -> int:
        """How many were added and are not kept."""
        return self.total - len(self._heap)
