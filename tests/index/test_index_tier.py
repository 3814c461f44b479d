"""One medium of one group: entries by block hash, their copies and identities."""

from __future__ import annotations

from kvctl.events import BlockHash
from kvctl.index.content import ANCHORED_LENGTH, Content
from kvctl.index.packed import content_of, pack
from kvctl.index.tier import Copies, Tier


def content(number: int, *, anchored: bool = True) -> Content:
    return number.to_bytes(ANCHORED_LENGTH, "big") + (b"" if anchored else b"?")


def add(tier: Tier, blocks: dict[BlockHash, Content], stored: float = 1.0) -> int:
    return sum(
        tier.add(names, packed, stored)
        for names, packed in pack(list(blocks), list(blocks.values()), stored, None)
    )


def test_a_block_added_again_is_a_copy_with_both_times() -> None:
    tier = Tier()
    assert add(tier, {1: content(1), 2: content(2)}, 10.0) == 2
    assert add(tier, {2: content(2), 3: content(3)}, 20.0) == 1
    assert tier.copies_of(1) == Copies(10.0, 10.0, 1)
    assert tier.copies_of(2) == Copies(10.0, 20.0, 2)


def test_the_last_copy_takes_the_entry_with_it() -> None:
    tier = Tier()
    add(tier, {1: content(1)})
    add(tier, {1: content(1)})
    assert [tier.remove_copy(1) for _ in range(3)] == [False, True, None]
    assert len(tier) == 0
    assert not tier.again


def test_a_block_that_turns_out_to_be_another_keeps_its_times() -> None:
    tier = Tier()
    add(tier, {1: content(1, anchored=False)}, 10.0)
    add(tier, {1: content(7)}, 20.0)
    assert content_of(tier.held[1], 1) == content(7)
    assert tier.copies_of(1) == Copies(10.0, 20.0, 2)
    assert tier.unanchored == 0


def test_a_correction_from_another_medium_adds_no_copy() -> None:
    tier = Tier()
    add(tier, {1: content(1, anchored=False), 2: content(2)}, 10.0)
    [(_names, packed)] = pack([1, 2, 3], [content(7), content(2), content(3)], 20.0, None)
    for name in (1, 2, 3):
        tier.correct(name, packed)
    assert list(tier.held) == [1, 2]
    assert content_of(tier.held[1], 1) == content(7)
    assert tier.copies_of(1) == Copies(10.0, 10.0, 1)


def test_blocks_stored_together_are_told_together_without_those_gone() -> None:
    tier = Tier()
    add(tier, {1: content(1), 2: content(2), 3: content(3)})
    add(tier, {4: content(4)})
    tier.remove(2)
    assert [contents for _packed, contents in tier.together()] == [
        [content(1), content(3)],
        [content(4)],
    ]


def test_equal_bytes_of_two_stores_are_not_taken_for_one() -> None:
    tier = Tier()
    for high in (0x100, 0x200):  # two names for each identity, at one time
        add(tier, {high | 1: content(1), high | 2: content(2)})
    for name in (0x102, 0x202):
        tier.remove(name)
    assert [contents for _packed, contents in tier.together()] == [[content(1)], [content(1)]]
