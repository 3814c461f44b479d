"""Prefix match: who holds how much of a prompt."""

from __future__ import annotations

import msgpack
import pytest
from builders import batch, cleared, removed, stored, tokens
from recordings import wire_batches

from kvctl.events import decode_record
from kvctl.index import MemoryIndex, Prompt
from kvctl.router import choose_longest


def prompt(*blocks: int, **fields: object) -> Prompt:
    return Prompt(tuple(tokens(*blocks)), **fields)  # type: ignore[arg-type]


def two_pods() -> MemoryIndex:
    index = MemoryIndex()
    index.apply(batch(stored([1, 2, 3], tokens(1, 2, 3)), pod="pod-a"))
    index.apply(batch(stored([1, 2], tokens(1, 2)), pod="pod-b"))
    return index


def test_a_match_is_the_longest_run_of_leading_blocks() -> None:
    index = two_pods()
    matches = index.match(prompt(1, 2, 3, 4))
    assert {pod: match.blocks for pod, match in matches.items()} == {"pod-a": 3, "pod-b": 2}
    assert (matches["pod-a"].percent, matches["pod-a"].tokens) == (75, 12)
    index.apply(batch(removed(2), pod="pod-a"))
    assert index.match(prompt(1, 2, 3, 4))["pod-a"].blocks == 1


def test_tokens_behind_the_last_whole_block_do_not_count() -> None:
    matches = two_pods().match(Prompt((*tokens(1, 2), 5, 6)))
    assert (matches["pod-a"].prompt_blocks, matches["pod-a"].blocks) == (2, 2)


def test_a_later_blocks_tokens_alone_match_nothing() -> None:
    assert two_pods().match(prompt(2, 3))["pod-a"].blocks == 0


def test_lora_and_salt_are_part_of_a_prompt() -> None:
    index = MemoryIndex()
    index.apply(batch(stored([1], tokens(1), lora_name="ad1", extra_keys=[["ad1"]])))
    index.apply(batch(stored([2], tokens(1), extra_keys=[["tenant-1"]])))
    assert index.match(prompt(1))["pod-a"].blocks == 0
    assert index.match(prompt(1, lora="ad1"))["pod-a"].blocks == 1
    assert index.match(prompt(1, first_extra_keys=("tenant-1",)))["pod-a"].blocks == 1
    assert index.match(prompt(1, first_extra_keys=("tenant-2",)))["pod-a"].blocks == 0


def test_a_prompt_for_another_model_matches_nothing() -> None:
    index = MemoryIndex()
    index.apply(batch(stored([1], tokens(1)), topic="kv@pod-a@tiny"))
    assert index.match(prompt(1))["pod-a"].blocks == 1
    assert index.match(prompt(1, model="tiny"))["pod-a"].blocks == 1
    assert index.match(prompt(1, model="big"))["pod-a"].blocks == 0


def test_offloaded_blocks_lengthen_the_match_apart() -> None:
    index = two_pods()
    index.apply(batch(stored([2], [], medium="CPU", size=0), removed(2), pod="pod-a"))
    match = index.match(prompt(1, 2, 3))["pod-a"]
    assert (match.blocks, match.blocks_any_medium) == (1, 3)
    assert match.to_dict()["blocks_any_medium"] == 3


def test_offloaded_blocks_may_be_named_in_any_order() -> None:
    index = MemoryIndex()
    index.apply(batch(stored([1, 2, 3, 4], tokens(1, 2, 3, 4)), pod="pod-a"))
    index.apply(batch(stored([4, 2], [], medium="CPU", size=0), removed(4, 2), pod="pod-a"))
    match = index.match(prompt(1, 2, 3, 4))["pod-a"]
    assert (match.blocks, match.blocks_any_medium) == (1, 4)


def test_of_several_ranks_the_best_counts() -> None:
    index = MemoryIndex()
    index.apply(batch(stored([1], tokens(1)), rank=0))
    index.apply(batch(stored([1, 2], tokens(1, 2)), rank=1))
    match = index.match(prompt(1, 2))["pod-a"]
    assert (match.rank, match.blocks) == (1, 2)


def test_the_full_attention_group_decides() -> None:
    """hybrid.jsonl, first batch: 12 blocks of full attention, the last 3 in the sliding window."""
    index = MemoryIndex()
    first = wire_batches("hybrid")[0]
    index.apply(decode_record(first))
    token_ids = msgpack.unpackb(first.payload)[1][1]["token_ids"]
    match = index.match(Prompt(tuple(token_ids)))["pod-c"]
    assert (match.blocks, match.prompt_blocks) == (12, 12)


def test_without_told_kinds_the_group_that_names_every_block_decides() -> None:
    index = MemoryIndex()
    index.apply(
        batch(
            stored([3], tokens(1, 2, 3), group_idx=0),
            stored([1, 2, 3], tokens(1, 2, 3), group_idx=1),
        )
    )
    assert index.match(prompt(1, 2, 3))["pod-a"].blocks == 3


def test_a_cleared_pod_matches_nothing() -> None:
    index = two_pods()
    index.apply(batch(cleared(), pod="pod-a"))
    assert index.match(prompt(1, 2))["pod-a"].blocks == 0


def test_pods_with_other_block_sizes_cut_the_prompt_their_own_way() -> None:
    index = MemoryIndex()
    index.apply(batch(stored([1, 2], tokens(1, 2)), pod="four"))
    index.apply(batch(stored([1], tokens(1, 2), size=8), pod="eight"))
    matches = index.match(prompt(1, 2))
    assert {pod: (m.blocks, m.block_size) for pod, m in matches.items()} == {
        "four": (2, 4),
        "eight": (1, 8),
    }


def test_a_block_hash_stands_for_the_prefix_that_ends_in_it() -> None:
    index = MemoryIndex(lineage=True)
    index.apply(batch(stored([1, 2, 3], tokens(1, 2, 3)), pod="pod-a"))
    index.apply(batch(stored([11, 12], tokens(1, 2)), pod="pod-b"))
    matches = index.match_block(3)
    assert matches is not None
    assert {pod: match.blocks for pod, match in matches.items()} == {"pod-a": 3, "pod-b": 2}
    assert index.match_block(99) is None


def test_ancestry_without_lineage_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="lineage"):
        MemoryIndex().ancestry(1)


def test_the_longest_prefix_is_chosen_and_says_why() -> None:
    choice = choose_longest(two_pods().match(prompt(1, 2, 3, 4)))
    assert choice.pod == "pod-a"
    assert choice.why == "holds 3 of 4 blocks, pod-b 2"


def test_a_tie_goes_to_the_first_name_and_says_so() -> None:
    choice = choose_longest(two_pods().match(prompt(1, 2)))
    assert choice.pod == "pod-a"
    assert "as many as pod-b" in choice.why


def test_nothing_is_chosen_where_nothing_matches() -> None:
    assert choose_longest(two_pods().match(prompt(9))).pod is None
    assert choose_longest(two_pods().match(Prompt((1,)))).pod is None
    assert choose_longest({}).pod is None
