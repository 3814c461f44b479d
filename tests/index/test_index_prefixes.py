"""The tree of shared prefixes: by hand, and against a plain model."""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
import pytest
from builders import batch, cleared, removed, stored, tokens
from hypothesis import given

from kvctl.index import MemoryIndex, PrefixTree, Removals

Prefix = tuple[int, ...]
Stream = tuple[str, int]
STREAMS = [("pod-a", 0), ("pod-a", 1), ("pod-b", 0)]


def named(stream: Stream, prefix: Prefix) -> int:
    """Each engine has its own name for a block."""
    return hash((stream, prefix)) & (2**64 - 1)


def hold(index: MemoryIndex, stream: Stream, *prompt: int) -> None:
    """The engine computes a prompt of such blocks."""
    pod, rank = stream
    names = [named(stream, prompt[: end + 1]) for end in range(len(prompt))]
    index.apply(batch(stored(names, tokens(*prompt)), pod=pod, rank=rank))


def told(tree: PrefixTree) -> list[tuple[int, int, tuple[Stream, ...], int, int | None]]:
    return [(run.begin, run.end, run.holders, run.continuations, run.above) for run in tree.runs]


A, A1, B = STREAMS


def test_a_system_prompt_forks_into_its_conversations() -> None:
    index = MemoryIndex(lineage=True)
    for stream, last in ((A, 7), (A, 8), (B, 7), (B, 9)):
        hold(index, stream, 1, 2, 3, last)
    tree = index.prefixes(10)
    assert told(tree) == [(0, 3, (A, B), 3, None), (3, 4, (A, B), 0, 0)]
    assert tree.runs[0].entries == 6
    assert tree.runs[0].last == named(A, (1, 2, 3))
    # Blocks 1, 2, 3 and 7 at both, 8 and 9 at one.
    assert tree.spread == {1: 2, 2: 4}
    assert tree.cut_off == 0


def test_a_run_ends_where_a_pod_lets_go() -> None:
    index = MemoryIndex(lineage=True)
    hold(index, A, 1, 2, 3, 4)
    hold(index, B, 1, 2)
    tree = index.prefixes(10)
    assert told(tree) == [(0, 2, (A, B), 1, None)]


def test_what_stands_behind_a_hole_matches_nothing() -> None:
    index = MemoryIndex(lineage=True)
    for stream in (A, B):
        hold(index, stream, 1, 2, 3)
    index.apply(batch(removed(named(B, (1,))), pod="pod-b"))
    tree = index.prefixes(10)
    assert tree.runs == ()
    assert tree.spread == {1: 3}
    assert tree.cut_off == 0
    index.apply(batch(cleared(), pod="pod-a"))
    tree = index.prefixes(10)
    assert tree.spread == {}
    assert tree.cut_off == 2


def test_a_run_is_named_by_one_who_holds_all_of_it() -> None:
    index = MemoryIndex(lineage=True)
    for stream in STREAMS:
        hold(index, stream, 1, 2)
    index.apply(batch(removed(named(A, (1,))), pod="pod-a", rank=0))
    [run] = index.prefixes(10).runs
    assert run.holders == (A1, B)
    assert run.last == named(A1, (1, 2))


def test_loras_are_prefixes_of_their_own() -> None:
    index = MemoryIndex(lineage=True)
    for pod in ("pod-a", "pod-b"):
        for number, lora in enumerate((None, "ad1")):
            names = [number * 10 + 1, number * 10 + 2]
            index.apply(batch(stored(names, tokens(1, 2), lora_name=lora), pod=pod))
    runs = index.prefixes(10).runs
    assert {run.lora for run in runs} == {None, "ad1"}
    assert all((run.begin, run.end) == (0, 2) for run in runs)


def test_only_the_biggest_are_named_and_all_are_counted() -> None:
    index = MemoryIndex(lineage=True)
    for number in range(30):
        for stream in (A, B):
            hold(index, stream, *range(number * 100, number * 100 + number + 1))
    tree = index.prefixes(5)
    assert tree.shared == 30
    assert [run.end for run in tree.runs] == [30, 29, 28, 27, 26]


def test_it_needs_the_lineage() -> None:
    with pytest.raises(ValueError, match="lineage"):
        MemoryIndex().prefixes(10)


def test_parents_of_what_is_gone_are_forgotten() -> None:
    index = MemoryIndex(lineage=True)
    hold(index, A, 1, 2, 3)
    hold(index, B, 1, 2, 9)
    index.apply(batch(cleared(), pod="pod-a"))
    assert index.remembered == 4
    index.forget_unheld()
    assert index.remembered == 3
    hold(index, A, 1, 2, 3)
    assert told(index.prefixes(10)) == [(0, 2, (A, B), 2, None)]


PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=5).map(tuple)
STEPS = st.lists(
    st.tuples(st.sampled_from(STREAMS), st.sampled_from(["hold", "remove"]), PROMPTS),
    max_size=25,
)


@given(STEPS, st.booleans())
def test_it_is_what_a_plain_model_says(
    steps: list[tuple[Stream, str, Prefix]], forget: bool
) -> None:
    index = MemoryIndex(lineage=True, removals=Removals.FIRST)
    held: set[tuple[Stream, Prefix]] = set()
    for stream, step, prompt in steps:
        if step == "hold":
            hold(index, stream, *prompt)
            held |= {(stream, prompt[: end + 1]) for end in range(len(prompt))}
        else:
            index.apply(batch(removed(named(stream, prompt)), pod=stream[0], rank=stream[1]))
            held.discard((stream, prompt))
    if forget:
        index.forget_unheld()

    def holders(prefix: Prefix) -> tuple[Stream, ...]:
        """Who holds it and all before it."""
        return tuple(
            stream
            for stream in STREAMS
            if all((stream, prefix[: end + 1]) in held for end in range(len(prefix)))
        )

    prefixes = {prefix for _stream, prefix in held}
    found = {prefix: holders(prefix) for prefix in prefixes if holders(prefix)}
    behind = Counter(prefix[:-1] for prefix in found)

    def ends(prefix: Prefix) -> bool:
        following = [each for each in found if each[:-1] == prefix]
        return len(following) != 1 or found[following[0]] != found[prefix]

    expected = set()
    for prefix, who in found.items():
        if ends(prefix) and (len(who) > 1 or behind[prefix] > 1):
            begin = len(prefix) - 1
            while begin and not ends(prefix[:begin]):
                begin -= 1
            expected.add((begin, len(prefix), who, behind[prefix], named(who[0], prefix)))
    tree = index.prefixes(1000)
    assert {
        (run.begin, run.end, run.holders, run.continuations, run.last) for run in tree.runs
    } == expected
    assert tree.shared == len(tree.runs) == len(expected)
    assert tree.spread == Counter(len(who) for who in found.values())
    assert tree.cut_off == len(prefixes) - len(found)
