"""The in-memory index: what events do to entries."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from builders import batch, cleared, removed, stored, tokens
from recordings import wire_batches

from kvctl.events import Gap, Note, Restart, Undecodable, WireBatch, decode_record
from kvctl.index import MemoryIndex, Prompt, Removals, policy
from kvctl.index.burial import ENTRIES_PER_DIG


def entries(index: MemoryIndex, pod: str = "pod-a") -> int:
    return index.entries_in(pod)


def from_recording(name: str, **options: object) -> MemoryIndex:
    """A recording in the index; a seq that goes back is a restart."""
    index = MemoryIndex(**options)  # type: ignore[arg-type]
    last: dict[tuple[str, int], int] = {}
    for wire in wire_batches(name):
        stream = (wire.pod, wire.rank)
        if wire.seq <= last.get(stream, -1):
            index.apply(Restart(wire.recv_ns, *stream, last[stream], "seq went back"))
        last[stream] = wire.seq
        index.apply(decode_record(wire))
    return index


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # 10 blocks, then 1, 1, and one of the 10 once more
        ("warm", {"pod-a": 12}),
        # the unanchored two of the first life are void; 5 and 2 of the second
        ("restart", {"pod-b": 7}),
        # 2 blocks in each of two groups behind the clear
        ("hybrid", {"pod-c": 4}),
        # 2 blocks on each of two ranks, each behind its own clear
        ("dp2", {"pod-b": 4}),
        # engines of 64 blocks, one of them the null block
        ("fleet", {"pod-a": 62, "pod-b": 62}),
        ("salt", {"pod-b": 6}),
    ],
)
def test_a_recording_ends_with_the_entries_its_engine_held(name: str, expected: dict) -> None:
    index = from_recording(name)
    assert {pod: index.entries_in(pod) for pod in expected} == expected
    assert index.summary().entries == sum(expected.values())


def test_equal_tokens_under_another_salt_are_other_blocks() -> None:
    assert from_recording("salt").summary().blocks == 6


def test_equal_tokens_are_one_block_in_two_groups_and_on_two_ranks() -> None:
    assert from_recording("hybrid").summary().blocks == 2
    assert from_recording("dp2").summary().blocks == 2


def test_equal_tokens_are_one_block_whatever_pods_call_it() -> None:
    index = MemoryIndex()
    index.apply(batch(stored([1, 2], tokens(1, 2)), pod="pod-a"))
    index.apply(batch(stored([b"x" * 32, b"y" * 32], tokens(1, 2)), pod="pod-b"))
    summary = index.summary()
    assert (summary.blocks, summary.entries) == (2, 4)


def test_models_keep_equal_tokens_apart() -> None:
    index = MemoryIndex(models={"pod-c": "other"})
    index.apply(batch(stored([1], tokens(1)), pod="pod-a", topic="kv@pod-a@tiny"))
    index.apply(batch(stored([1], tokens(1)), pod="pod-b", topic="kv@pod-b@big"))
    index.apply(batch(stored([1], tokens(1)), pod="pod-c"))
    assert index.summary().blocks == 3
    assert [stream.model for stream in index.summary().streams] == ["tiny", "big", "other"]


def test_a_block_stored_twice_goes_with_its_second_removal() -> None:
    index = MemoryIndex()
    index.apply(batch(stored([1], tokens(1)), stored([1], tokens(1))))
    assert entries(index) == 1
    index.apply(batch(removed(1)))
    assert entries(index) == 1
    index.apply(batch(removed(1)))
    assert entries(index) == 0


def test_one_event_that_names_a_block_twice_counts_two_copies() -> None:
    index = MemoryIndex()
    index.apply(batch(stored([1], tokens(1))))
    index.apply(batch(stored([1, 1], [], medium="CPU", size=0)))
    index.apply(batch(removed(1, medium="CPU")))
    assert entries(index) == 2


def test_with_removals_first_a_block_goes_at_once() -> None:
    index = MemoryIndex(removals=Removals.FIRST)
    index.apply(batch(stored([1], tokens(1)), stored([1], tokens(1)), removed(1)))
    assert entries(index) == 0


def test_a_removal_of_an_unknown_block_is_counted_and_harmless() -> None:
    index = MemoryIndex()
    index.apply(batch(removed(9)))
    index.apply(batch(stored([1], tokens(1)), removed(9), removed(1, medium="CPU")))
    assert entries(index) == 1
    assert index.counters.unknown_removed == 3


def test_a_removal_reaches_its_own_pod_rank_medium_and_group_only() -> None:
    index = MemoryIndex()
    for pod, rank in [("pod-a", 0), ("pod-a", 1), ("pod-b", 0)]:
        index.apply(batch(stored([1], tokens(1)), pod=pod, rank=rank))
    index.apply(batch(stored([1], tokens(1), group_idx=1)))
    index.apply(batch(stored([1], [], medium="CPU", size=0)))
    index.apply(batch(removed(1, medium="GPU")))
    left = {(e.pod, e.rank, e.medium, e.group) for e in index.entries()}
    assert left == {
        ("pod-a", 0, "GPU", 1),
        ("pod-a", 0, "CPU", 0),
        ("pod-a", 1, "GPU", 0),
        ("pod-b", 0, "GPU", 0),
    }


def test_an_offloaded_block_without_tokens_is_the_block_its_hash_names() -> None:
    index = MemoryIndex()
    index.apply(batch(stored([1], tokens(1)), stored([1], [], medium="CPU", size=0)))
    assert index.summary().blocks == 1
    assert index.summary().streams[0].media == {"GPU": 1, "CPU": 1}


def test_a_clear_wipes_every_lora_medium_and_group_of_its_rank_only() -> None:
    index = MemoryIndex()
    for rank in (0, 1):
        index.apply(
            batch(
                stored([1], tokens(1)),
                stored([2], tokens(1), lora_name="ad1"),
                stored([3], tokens(3), medium="CPU"),
                stored([1], tokens(1), group_idx=1),
                rank=rank,
            )
        )
    index.apply(batch(cleared(), rank=1))
    assert (index.entries_in("pod-a", 0), index.entries_in("pod-a", 1)) == (4, 0)


def test_a_store_behind_a_clear_in_one_batch_stays() -> None:
    index = MemoryIndex()
    index.apply(batch(stored([1, 2], tokens(1, 2))))
    index.apply(batch(cleared(), stored([3], tokens(3))))
    assert [entry.block_hash for entry in index.entries()] == [3]
    index.apply(batch(stored([4], tokens(4)), cleared()))
    assert entries(index) == 0


def test_a_restart_ends_the_entries_of_its_stream() -> None:
    index = MemoryIndex()
    index.apply(batch(stored([1], tokens(1)), rank=0))
    index.apply(batch(stored([1], tokens(1)), rank=1))
    index.apply(Restart(0, "pod-a", 1, 5, "seq went back"))
    assert (index.entries_in("pod-a", 0), index.entries_in("pod-a", 1)) == (1, 0)


def test_gaps_notes_and_undecodable_batches_change_no_entry() -> None:
    index = MemoryIndex()
    index.apply(batch(stored([1], tokens(1))))
    index.apply(Gap(0, "pod-a", 0, 1, 3, False))
    index.apply(Note(0, "pod-a", None, "connection lost"))
    index.apply(Undecodable(WireBatch(0, "pod-a", 0, b"", 4, b"junk"), "junk"))
    assert entries(index) == 1


def test_the_noop_policy_ignores_clears_and_restarts() -> None:
    index = MemoryIndex(policy=policy("noop"))
    index.apply(batch(stored([1], tokens(1)), cleared()))
    index.apply(Restart(0, "pod-a", 0, 0, "seq went back"))
    assert entries(index) == 1
    assert index.counters.clears == 1


def test_the_aibrix_policy_clears_one_lora_only() -> None:
    index = MemoryIndex(policy=policy("aibrix"), loras={"pod-b": "ad1"})
    for pod in ("pod-a", "pod-b"):
        index.apply(
            batch(
                stored([1], tokens(1)),
                stored([2], tokens(1), lora_name="ad1"),
                stored([3], tokens(1), lora_name="ad2"),
                cleared(),
                pod=pod,
            )
        )
    assert {(e.pod, e.lora) for e in index.entries()} == {
        ("pod-a", "ad1"),
        ("pod-a", "ad2"),
        ("pod-b", None),
        ("pod-b", "ad2"),
    }


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Exception, match="purge, noop, aibrix"):
        policy("polite")


def test_a_store_with_an_unknown_parent_is_kept_apart_and_never_matches() -> None:
    index = MemoryIndex()
    index.apply(batch(stored([2, 3], tokens(2, 3), parent=1)))
    index.apply(batch(stored([4], tokens(4), parent=3)))
    stream = index.summary().streams[0]
    assert (stream.entries, stream.unanchored) == (3, 3)
    assert index.match(Prompt(tuple(tokens(2, 3, 4))))["pod-a"].blocks == 0
    assert not any(entry.anchored for entry in index.entries())
    index.apply(batch(removed(2, 3, 4)))
    assert index.summary().streams[0].unanchored == 0


def test_an_unanchored_block_stored_again_under_a_known_parent_is_anchored() -> None:
    index = MemoryIndex()
    index.apply(batch(stored([2], tokens(2), parent=1)))
    index.apply(batch(stored([1, 2], tokens(1, 2))))
    stream = index.summary().streams[0]
    assert (stream.entries, stream.unanchored) == (2, 0)
    assert index.match(Prompt(tuple(tokens(1, 2))))["pod-a"].blocks == 2


def test_a_lora_named_only_by_its_id_is_kept_apart_from_the_base_model() -> None:
    index = MemoryIndex()
    index.apply(batch(stored([1], tokens(1)), stored([2], tokens(1), lora_id=7)))
    assert index.summary().blocks == 2
    assert index.summary().streams[0].loras == {"#7": 1}


def test_the_loras_own_name_among_the_extra_keys_makes_no_other_block() -> None:
    """vLLM sends it from 0.17 on; older versions name the LoRA only in its field."""
    index = MemoryIndex()
    index.apply(batch(stored([1], tokens(1), lora_name="ad1"), pod="old"))
    index.apply(batch(stored([1], tokens(1), lora_name="ad1", extra_keys=[["ad1"]]), pod="new"))
    index.apply(
        batch(stored([1], tokens(1), lora_name="ad1", extra_keys=[["ad1", "salt"]]), pod="salted")
    )
    assert index.summary().blocks == 2


def test_tokens_outside_32_bits_are_told_apart() -> None:
    index = MemoryIndex()
    for number, odd in enumerate([-1, 2**32 - 1, 2**32, 2**63]):
        index.apply(batch(stored([number], [odd, 1, 2, 3])))
    assert index.summary().blocks == 4


def test_times_and_copies_of_an_entry_are_kept() -> None:
    index = MemoryIndex()
    for ts in (10.0, 20.0, 30.0):
        index.apply(batch(stored([1], tokens(1)), ts=ts))
    index.apply(batch(removed(1), ts=40.0))
    (entry,) = index.entries()
    assert (entry.first_stored, entry.last_stored, entry.references) == (10.0, 30.0, 2)


def test_a_purge_with_a_cutoff_keeps_what_was_stored_since() -> None:
    index = MemoryIndex()
    index.apply(batch(stored([1, 2], tokens(1, 2)), ts=10.0))
    index.apply(batch(stored([1], tokens(1)), ts=20.0))
    index.apply(batch(stored([5], tokens(5), parent=99), ts=5.0))
    assert index.purge("pod-a", before=15.0) == 2
    assert [entry.block_hash for entry in index.entries()] == [1]
    assert index.summary().streams[0].unanchored == 0
    assert index.purge("pod-a", before=15.0) == 0
    assert index.purge("pod-a", before=25.0) == 1


def test_a_purge_of_a_pod_leaves_the_others() -> None:
    index = MemoryIndex()
    for pod in ("pod-a", "pod-b"):
        for rank in (0, 1):
            index.apply(batch(stored([1, 2], tokens(1, 2)), pod=pod, rank=rank))
    assert index.purge("pod-a") == 4
    assert index.purge("pod-b", 1) == 2
    assert index.purge("pod-z") == 0
    assert index.summary().entries == 2


def steps_of(work: Callable[[], object]) -> int:
    """How many lines of Python ``work`` executes."""
    count = 0

    def trace(_frame: object, event: str, _arg: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def filled(blocks: int) -> MemoryIndex:
    index = MemoryIndex()
    for at in range(0, blocks, 1000):
        hashes = range(at, min(at + 1000, blocks))
        index.apply(batch(stored(list(hashes), [t for h in hashes for t in (h, 0, 0, 1)])))
    assert entries(index) == blocks
    return index


def test_a_purge_and_a_clear_take_as_many_steps_for_ten_entries_as_for_many() -> None:
    small, large = filled(10), filled(20_000)
    assert steps_of(lambda: small.purge("pod-a")) == steps_of(lambda: large.purge("pod-a"))
    small, large = filled(10), filled(20_000)
    clear = batch(cleared())
    assert steps_of(lambda: small.apply(clear)) == steps_of(lambda: large.apply(clear))
    assert entries(large) == 0


def test_purged_entries_are_freed_a_few_a_batch() -> None:
    index = filled(3 * ENTRIES_PER_DIG)
    index.purge("pod-a")
    waiting = index._burial._dicts
    left = sum(map(len, waiting))
    while waiting:
        index.apply(batch())
        assert left - sum(map(len, waiting)) <= ENTRIES_PER_DIG
        left = sum(map(len, waiting))
    assert left == 0


def test_entries_tell_pod_lora_medium_and_hash_as_json() -> None:
    index = MemoryIndex()
    index.apply(
        batch(stored([b"\xab" * 16], tokens(1), lora_name="ad1", medium="CPU"), topic="kv@p@tiny")
    )
    (entry,) = index.entries("pod-a")
    told = entry.to_dict()
    assert told["block_hash"] == "ab" * 16
    assert (told["lora"], told["medium"], told["model"]) == ("ad1", "CPU", "tiny")
    index.apply(batch(stored([2], tokens(2)), pod="pod-b"))
    assert "lora" not in next(index.entries("pod-b")).to_dict()
