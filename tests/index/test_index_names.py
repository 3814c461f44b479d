"""The index of names: it counts what `MemoryIndex` counts (see the model-based test too)."""

from __future__ import annotations

import pytest
from builders import batch, cleared, removed, stored, tokens
from recordings import CAPTURES, wire_batches

from kvctl.events import Batch, Gap, Note, Restart, Undecodable, WireBatch, decode_record
from kvctl.index import MemoryIndex, NameIndex

RECORDINGS = sorted(path.stem for path in CAPTURES.glob("*.jsonl"))


@pytest.mark.parametrize("name", RECORDINGS)
def test_after_each_batch_of_a_recording_both_count_the_same(name: str) -> None:
    whole, names = MemoryIndex(), NameIndex()
    for wire in wire_batches(name):
        whole.apply(decode_record(wire))
        names.apply(decode_record(wire, tokens=False))
        assert names.entries_in(wire.pod) == whole.entries_in(wire.pod)
    for stream in whole.summary().streams:
        assert names.entries_in(stream.pod, stream.rank) == stream.entries
    for pod in {stream.pod for stream in whole.summary().streams}:
        times = [entry.last_stored for entry in whole.entries(pod)]
        for cutoff in sorted(set(times)):
            assert names.stored_before(pod, cutoff) == sum(time < cutoff for time in times)


def test_groups_and_media_of_a_block_are_entries_of_their_own() -> None:
    index = NameIndex()
    block = tokens(1)
    index.apply(
        batch(
            stored([1], block, group_idx=0),
            stored([1], block, group_idx=1),
            stored([1], block, group_idx=1, medium="CPU"),
        )
    )
    assert index.entries_in("pod-a") == 3
    index.apply(batch(removed(1, group_idx=1), removed(1, medium="STORAGE"), removed(9)))
    assert index.entries_in("pod-a") == 2
    index.apply(batch(removed(1, group_idx=1, medium="cpu"), removed(1)))
    assert index.entries_in("pod-a") == 0
    assert index.newest("pod-a") is None


def test_a_block_stored_three_times_goes_with_the_third_remove() -> None:
    index = NameIndex()
    for ts in (1.0, 2.0, 3.0):
        index.apply(batch(stored([1], tokens(1)), ts=ts))
    assert (index.stored_before("pod-a", 3.0), index.stored_before("pod-a", 3.5)) == (0, 1)
    for left in (1, 1, 0, 0):
        index.apply(batch(removed(1)))
        assert index.entries_in("pod-a") == left


def test_a_clear_in_the_middle_of_a_batch_leaves_what_comes_after_it() -> None:
    index = NameIndex()
    index.apply(batch(stored([1, 2], tokens(1, 2)), cleared(), stored([3], tokens(3))))
    assert index.entries_in("pod-a") == 1
    index.apply(batch(stored([1], tokens(1)), rank=1))
    index.apply(Restart(0, "pod-a", 0, None, "test"))
    assert (index.entries_in("pod-a", 0), index.entries_in("pod-a", 1)) == (0, 1)


def test_copies_do_not_outlive_their_entry() -> None:
    """Purged and stored anew, one remove is enough."""
    index = NameIndex()
    for ts in (1.0, 2.0):
        index.apply(batch(stored([1], tokens(1)), ts=ts))
    assert index.purge("pod-a", before=3.0) == 1
    index.apply(batch(stored([1], tokens(1)), ts=4.0))
    index.apply(batch(removed(1), ts=5.0))
    assert index.entries_in("pod-a") == 0


def test_records_that_change_no_entry_change_none() -> None:
    index = NameIndex()
    index.apply(batch(stored([1], tokens(1))))
    wire = WireBatch(0, "pod-a", 0, b"", 1, b"junk")
    for record in (
        Undecodable(wire, "junk"),
        Gap(0, "pod-a", 0, 1, 2, False),
        Note(0, "pod-a", None, "text"),
    ):
        index.apply(record)
    assert index.entries_in("pod-a") == 1


def test_what_comes_behind_a_purge_counts_anew() -> None:
    index = NameIndex()
    index.apply(batch(stored(range(5_000), tokens(*range(5_000)))))
    assert index.purge("pod-a") == 5_000
    later = batch(stored([1], tokens(1)))
    assert isinstance(later, Batch)
    for _ in range(20):
        index.apply(later)
    assert index.entries_in("pod-a") == 1
    assert index.purge("nobody") == 0
