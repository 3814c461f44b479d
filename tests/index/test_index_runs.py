"""The look-up by runs against a plain set of identities."""

from __future__ import annotations

from itertools import takewhile

import hypothesis.strategies as st
import pytest
from hypothesis import given

from kvctl.events import BlockHash
from kvctl.index.content import ANCHORED_LENGTH, Content
from kvctl.index.packed import pack
from kvctl.index.tier import Tier


def content(number: int) -> Content:
    return number.to_bytes(ANCHORED_LENGTH, "big")


def add(tier: Tier, names: list[BlockHash], contents: list[Content]) -> None:
    for run, packed in pack(names, contents, 1.0, None):
        tier.add(run, packed, 1.0)


PROMPT = [content(at) for at in range(12)]


@pytest.fixture
def tier() -> Tier:
    tier = Tier()
    add(tier, [0, 1, 2, 3], PROMPT[:4])
    add(tier, [4, 5, 6, 7], PROMPT[4:8])
    return tier


def test_a_prompt_is_followed_from_run_to_run(tier: Tier) -> None:
    assert tier.leading(PROMPT) == 8
    assert tier.leading(PROMPT[:6]) == 6
    assert tier.leading([*PROMPT[:6], content(99)]) == 6
    assert tier.leading([]) == 0
    assert tier.leading([content(99)]) == 0


def test_what_comes_and_goes_after_the_first_look_up_counts(tier: Tier) -> None:
    assert tier.leading(PROMPT) == 8
    tier.remove(5)
    assert tier.leading(PROMPT) == 5
    assert tier.covered(PROMPT) == [True] * 5 + [False] + [True] * 2 + [False] * 4
    for at in (8, 5):
        add(tier, [at], [PROMPT[at]])
    assert tier.leading(PROMPT) == 9


def test_an_identity_under_two_names_goes_with_the_second(tier: Tier) -> None:
    assert tier.leading(PROMPT) == 8
    add(tier, [b"x" * 32], PROMPT[:1])
    tier.remove(0)
    assert tier.leading(PROMPT) == 8
    tier.remove(b"x" * 32)
    assert tier.leading(PROMPT) == 0
    assert tier.covered(PROMPT)[1:8] == [True] * 7


def test_a_run_that_lost_its_end_is_still_one(tier: Tier) -> None:
    assert tier.leading(PROMPT) == 8
    for name in (7, 6):
        tier.remove(name)
    assert tier.leading(PROMPT) == 6
    add(tier, [0x107], PROMPT[6:7])
    assert tier.leading(PROMPT) == 7


# What a tier goes through: runs of the prompt stored, and removals of any block.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("store"), st.integers(0, 11), st.integers(1, 12)),
        st.tuples(st.just("remove"), st.integers(0, 11), st.just(0)),
    ),
    max_size=40,
)


@given(steps=STEPS, asked_from=st.integers(0, 40))
def test_after_any_steps_the_held_blocks_are_told(
    steps: list[tuple[str, int, int]], asked_from: int
) -> None:
    tier = Tier()
    held: set[int] = set()
    for number, (what, at, count) in enumerate(steps):
        if number == asked_from:
            tier.leading(PROMPT)
        if what == "store":
            blocks = list(range(at, min(at + count, len(PROMPT))))
            add(tier, list(blocks), [PROMPT[each] for each in blocks])
            held.update(blocks)
        else:
            tier.remove(at)
            held.discard(at)
    expected = [at in held for at in range(len(PROMPT))]
    assert tier.covered(PROMPT) == expected
    assert tier.leading(PROMPT) == sum(1 for _ in takewhile(bool, expected))
