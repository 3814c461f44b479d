"""An index that counts: which pod holds which blocks, by the engines' own names for them.

It knows no content, so there is no match, and no telling what pods have in common. For who asks
how much each pod holds, and since when, that is enough, in a third of the time that `MemoryIndex`
takes.
"""

from __future__ import annotations

import math

from kvctl.events import (
    AllBlocksCleared,
    Batch,
    BlockHash,
    BlockRemoved,
    BlockStored,
    EventBatch,
    Record,
    Restart,
)
from kvctl.index.burial import Burial
from kvctl.index.spans import medium_of


class NameIndex:
    """Entries of all pods by block hash. Times are the engine's, in seconds.

    Its records need no tokens: `decode_record(…, tokens=False)`, `StreamReader(…, tokens=False)`.
    """

    def __init__(self) -> None:
        self._streams: dict[tuple[str, int], _Stream] = {}
        self._burial = Burial()

    def apply(self, record: Record) -> None:
        """Take one record in. Gaps, notes and undecodable batches change no entry."""
        if isinstance(record, Batch):
            self._burial.dig()
            self._apply_batch((record.wire.pod, record.wire.rank), record.events)
        elif isinstance(record, Restart):
            self.purge(record.pod, record.rank)

    def _apply_batch(self, key: tuple[str, int], batch: EventBatch) -> None:
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = _Stream()
        for event in batch.events:
            if isinstance(event, BlockStored):
                stream.store(event, batch.ts)
            elif isinstance(event, BlockRemoved):
                stream.remove(event)
            elif isinstance(event, AllBlocksCleared):
                self.purge(*key)
                stream = self._streams[key]

    def purge(self, pod: str, rank: int | None = None, *, before: float | None = None) -> int:
        """Remove the entries of a pod (of one DP rank), returning how many they were.

        With ``before`` only those last stored earlier than that: this looks at each entry.
        """
        purged = 0
        for key, stream in self._of(pod, rank):
            if before is not None:
                purged += stream.drop_stored_before(before)
                continue
            purged += stream.entries
            self._streams[key] = _Stream()
            stream.bury(self._burial)
        return purged

    def entries_in(self, pod: str, rank: int | None = None) -> int:
        """How many entries a pod (one DP rank of it) has; costs nothing."""
        return sum(stream.entries for _key, stream in self._of(pod, rank))

    def stored_before(self, pod: str, cutoff: float) -> int:
        """How many of a pod's entries were last stored earlier than that; looks at each."""
        return sum(stream.stored_before(cutoff) for _key, stream in self._of(pod, None))

    def newest(self, pod: str) -> float | None:
        """When a pod stored last, None if it holds nothing."""
        return max(
            (stream.newest for _key, stream in self._of(pod, None) if stream.entries), default=None
        )

    def _of(self, pod: str, rank: int | None) -> list[tuple[tuple[str, int], _Stream]]:
        return [
            (key, stream)
            for key, stream in self._streams.items()
            if key[0] == pod and (rank is None or key[1] == rank)
        ]


class _Stream:
    """What one (pod, DP rank) holds: by group and medium, then by name, when it was last stored.

    ``_copies`` counts those that were stored more than once.
    """

    __slots__ = ("_copies", "_held", "newest")

    def __init__(self) -> None:
        self.newest = -math.inf
        self._held: dict[tuple[int, str], dict[BlockHash, float]] = {}
        self._copies: dict[tuple[int, str, BlockHash], int] = {}

    @property
    def entries(self) -> int:
        return sum(map(len, self._held.values()))

    def store(self, event: BlockStored, stored: float) -> None:
        where = (event.group_idx or 0, medium_of(event.medium))
        held = self._held.get(where)
        if held is None:
            held = self._held[where] = {}
        if stored > self.newest:
            self.newest = stored
        for name in event.block_hashes:
            if name in held:
                copy = (*where, name)
                self._copies[copy] = self._copies.get(copy, 1) + 1
            held[name] = stored

    def remove(self, event: BlockRemoved) -> None:
        where = (event.group_idx or 0, medium_of(event.medium))
        held = self._held.get(where)
        if held is None:
            return
        for name in event.block_hashes:
            if self._copies and (copies := self._copies.pop((*where, name), 1)) > 1:
                if copies > 2:
                    self._copies[*where, name] = copies - 1
            else:
                held.pop(name, None)

    def drop_stored_before(self, cutoff: float) -> int:
        dropped = 0
        for where, held in self._held.items():
            doomed = [name for name, stored in held.items() if stored < cutoff]
            for name in doomed:
                del held[name]
                self._copies.pop((*where, name), None)
            dropped += len(doomed)
        return dropped

    def stored_before(self, cutoff: float) -> int:
        return sum(stored < cutoff for held in self._held.values() for stored in held.values())

    def bury(self, burial: Burial) -> None:
        """Let go of every entry; it must not be used any more."""
        for held in self._held.values():
            burial.add(held)
        burial.add(self._copies)
