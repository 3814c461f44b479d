"""Counts of what passed by."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvctl.events.model import AllBlocksCleared, BlockRemoved, BlockStored
from kvctl.events.records import Batch, Gap, Note, Record, Restart, Undecodable


@dataclass(slots=True)
class Tally:
    """What a run of records held. ``blocks_stored`` and ``blocks_removed`` count block hashes."""

    batches: int = 0
    stores: int = 0
    removes: int = 0
    clears: int = 0
    unknown: int = 0
    blocks_stored: int = 0
    blocks_removed: int = 0
    undecodable: int = 0
    gaps: list[Gap] = field(default_factory=list)
    restarts: list[Restart] = field(default_factory=list)

    def add(self, record: Record) -> None:
        """Count one record."""
        if isinstance(record, Batch):
            self.batches += 1
            for event in record.events.events:
                if isinstance(event, BlockStored):
                    self.stores += 1
                    self.blocks_stored += len(event.block_hashes)
                elif isinstance(event, BlockRemoved):
                    self.removes += 1
                    self.blocks_removed += len(event.block_hashes)
                elif isinstance(event, AllBlocksCleared):
                    self.clears += 1
                else:
                    self.unknown += 1
        elif isinstance(record, Undecodable):
            self.batches += 1
            self.undecodable += 1
        elif isinstance(record, Gap):
            self.gaps.append(record)
        elif isinstance(record, Restart):
            self.restarts.append(record)
        else:
            assert isinstance(record, Note)

    @property
    def events(self) -> dict[str, int]:
        """Events by type, unknown types together."""
        return {
            "BlockStored": self.stores,
            "BlockRemoved": self.removes,
            "AllBlocksCleared": self.clears,
            "unknown": self.unknown,
        }

    @property
    def missing(self) -> int:
        """Batches in gaps that were not recovered."""
        return sum(gap.missing for gap in self.gaps if not gap.recovered)
