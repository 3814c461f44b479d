"""The index whose entries a reset or a sleep makes stale."""

from __future__ import annotations

import math
from typing import Protocol

from kvctl.index import PurgeableIndex


class Target(Protocol):
    """One pod's entries in an index. Times are the engine's; None stands for every entry where the
    index keeps no times."""

    @property
    def title(self) -> str:
        """Which index it is, for a sentence."""
        ...

    @property
    def fed_elsewhere(self) -> bool:
        """Whether somebody else keeps it up to date: it may lag behind the stream."""
        ...

    def cutoff(self) -> float | None:
        """Engine time that divides what is stored by now from what comes; None for no entry."""
        ...

    def entries_before(self, cutoff: float | None) -> int:
        """How many entries were last stored before that time."""
        ...

    def purge(self, cutoff: float | None) -> int:
        """Remove those; returns how many they were."""
        ...


class StoredTarget:
    """A pod's entries in an index that lasts, or in a router's own."""

    fed_elsewhere = True

    def __init__(self, index: PurgeableIndex, pod: str, title: str) -> None:
        self._index = index
        self._pod = pod
        self.title = title

    def cutoff(self) -> float | None:
        """Just after the newest entry; None for no entry, and where no times are kept."""
        newest = [
            fact.newest
            for fact in self._index.facts()
            if fact.pod == self._pod and fact.newest is not None
        ]
        return math.nextafter(max(newest), math.inf) if newest else None

    def entries_before(self, cutoff: float | None) -> int:
        """How many entries were last stored before that time."""
        if cutoff is None and self._index.traits.times:
            return 0
        return self._index.stored_before(self._pod, None, self._known(cutoff))

    def purge(self, cutoff: float | None) -> int:
        """Remove those; all of the pod's where no times are kept."""
        if cutoff is None and self._index.traits.times:
            return 0
        return self._index.purge(self._pod, before=self._known(cutoff))

    def _known(self, cutoff: float | None) -> float | None:
        return cutoff if self._index.traits.times else None
