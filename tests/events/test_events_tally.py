"""Counts of what passed by."""

from __future__ import annotations

from kvctl.events import (
    AllBlocksCleared,
    Batch,
    BlockRemoved,
    BlockStored,
    EventBatch,
    Gap,
    Note,
    Record,
    Restart,
    Tally,
    Undecodable,
    UnknownEvent,
    WireBatch,
)


def test_a_tally_counts_what_passed() -> None:
    tally = Tally()
    wire = WireBatch(0, "pod-a", 0, b"", 0, b"")
    store, remove = BlockStored([1, 2, 3], None, [1, 2, 3], 1), BlockRemoved([4, 5])
    gaps = [Gap(0, "pod-a", 0, 1, 4, False), Gap(0, "pod-a", 0, 5, 5, True)]
    restart = Restart(0, "pod-a", 0, 5, "seq 0 after 5")
    records: list[Record] = [
        Batch(wire, EventBatch(1.0, [store, remove, remove, AllBlocksCleared()])),
        Batch(wire, EventBatch(1.0, [UnknownEvent("Moved", {})])),
        Undecodable(wire, "junk"),
        *gaps,
        restart,
        Note(0, "pod-a", None, "text"),
    ]
    for record in records:
        tally.add(record)
    assert tally.events == {
        "BlockStored": 1,
        "BlockRemoved": 2,
        "AllBlocksCleared": 1,
        "unknown": 1,
    }
    assert (tally.blocks_stored, tally.blocks_removed) == (3, 4)
    assert (tally.batches, tally.undecodable) == (3, 1)
    assert (tally.gaps, tally.restarts) == (gaps, [restart])
    assert tally.missing == 4
