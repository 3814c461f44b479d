"""What an index offers, wherever it lives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from kvctl.events import Position, Record
from kvctl.index.model import Entry, IndexSummary, PodMatch, Prompt, StreamFacts, Traits


class IndexView(Protocol):
    """An index to look into. Methods raise `IndexStoreError` where it cannot be read."""

    @property
    def traits(self) -> Traits:
        """What it tells of its entries."""
        ...

    def summary(self) -> IndexSummary:
        """Counts per stream, and distinct blocks."""
        ...

    def entries(self, pod: str | None = None) -> Iterator[Entry]:
        """Every entry, of one pod or of all."""
        ...

    def match(self, prompt: Prompt) -> dict[str, PodMatch]:
        """Per pod, how many leading blocks of the prompt it holds."""
        ...


class PurgeableIndex(IndexView, Protocol):
    """An index whose stale entries can be removed. Methods raise `IndexStoreError`."""

    def facts(self) -> list[StreamFacts]:
        """What is known of every stream besides its entries, to judge them by."""
        ...

    def stored_before(self, pod: str, rank: int | None, cutoff: float | None) -> int:
        """How many entries were last stored before an engine time; all without ``cutoff``."""
        ...

    def purge(self, pod: str, rank: int | None = None, *, before: float | None = None) -> int:
        """Remove a pod's entries, those last stored before an engine time; returns how many.

        Where the index tells no ranks or times, they must be None: it would take too much.
        """
        ...


@runtime_checkable
class IndexStore(PurgeableIndex, Protocol):
    """An index that lasts. Methods raise `IndexStoreError` where it cannot be written."""

    def apply(self, record: Record) -> None:
        """Take one record in. What is not committed yet may be lost with the process."""
        ...

    def commit(self) -> None:
        """Make everything applied so far last, with the streams' positions."""
        ...

    def begin_again(self, pod: str, rank: int) -> None:
        """Remove a stream's entries and its position: what is applied next counts anew.

        Where the index tells no ranks, the whole pod's entries.
        """
        ...

    def remarks(self) -> list[str]:
        """What was not taken in, and why, in sentences."""
        ...

    def positions(self) -> dict[tuple[str, int], Position]:
        """The last batch that every (pod, DP rank) was taken in from."""
        ...

    def close(self) -> None:
        """Commit, and let go."""
        ...
