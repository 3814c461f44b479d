from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvctl.router import LEAST_LOADED, PREFIX, AibrixRouter, Constants, choose_aibrix


def choose(holders: list[str], running: dict[str, int], seed: int = 0, **constants):
    """Holders as words: "ab" is a block that pods a and b hold."""
    return choose_aibrix(
        [set(pods) for pods in holders], running, Random(seed), Constants(**constants)
    )


def test_the_pod_that_matches_most_gets_the_prompt() -> None:
    choice = choose(["ab", "ab", "a", ""], {"a": 0, "b": 0})
    assert (choice.pod, choice.rule) == ("a", PREFIX)
    assert {pod: each.percent for pod, each in choice.standings.items()} == {"a": 75, "b": 50}


def test_percents_are_rounded_down() -> None:
    assert choose(["a", "", ""], {"a": 0}).standings["a"].percent == 33


def test_the_walk_ends_at_the_first_block_that_nobody_holds() -> None:
    assert choose(["a", "", "a"], {"a": 0, "b": 0}).standings["a"].blocks == 1


def test_a_pod_may_lack_a_block_in_the_middle() -> None:
    """AIBrix asks only that some pod holds each block: a false 100 %."""
    choice = choose(["b", "a"], {"a": 0, "b": 0})
    assert choice.standings["a"].percent == 100
    assert choice.pod == "a"


def test_among_equals_the_less_loaded_gets_it() -> None:
    assert choose(["ab"], {"a": 2, "b": 1, "c": 9}, imbalance=99).pod == "b"


def test_ties_are_shuffled_by_the_seed() -> None:
    chosen = Counter(choose(["ab"], {"a": 1, "b": 1}, seed).pod for seed in range(100))
    assert set(chosen) == {"a", "b"}
    assert "at random" in choose(["ab"], {"a": 1, "b": 1}).why


def test_a_pod_above_mean_and_deviation_is_passed_over() -> None:
    # 8, 0, 0: mean 2.67, deviation 3.77, bound 6.4.
    choice = choose(["ab", "a"], {"a": 8, "b": 0, "c": 0})
    assert (choice.pod, choice.rule) == ("b", PREFIX)
    assert "above it: a (100 %, runs 8)" in choice.why
    assert choice.mean == pytest.approx(2.667, abs=0.001)
    assert choice.deviation == pytest.approx(3.771, abs=0.001)


def test_with_a_higher_factor_it_is_not() -> None:
    assert choose(["ab", "a"], {"a": 8, "b": 0, "c": 0}, deviation_factor=2.0).pod == "a"


def test_where_every_match_is_overloaded_the_least_loaded_gets_it() -> None:
    choice = choose(["a"], {"a": 8, "b": 1, "c": 0})
    assert (choice.pod, choice.rule) == ("c", LEAST_LOADED)
    assert "a matched, but above the bound" in choice.why


def test_without_a_match_the_least_loaded_gets_it() -> None:
    choice = choose(["", "a"], {"a": 1, "b": 0})
    assert (choice.pod, choice.rule) == ("b", LEAST_LOADED)
    assert "no candidate holds the first block" in choice.why


def test_a_spread_of_more_than_eight_leaves_the_least_loaded_as_candidates() -> None:
    assert choose(["a"], {"a": 8, "b": 0, "c": 8, "d": 8}).pod == "a"
    gated = choose(["a"], {"a": 9, "b": 0, "c": 9, "d": 9})
    assert (gated.pod, gated.rule) == ("b", LEAST_LOADED)
    assert not gated.standings["a"].candidate
    assert gated.why.startswith("load is uneven by 9")


def test_without_pods_there_is_no_choice() -> None:
    assert choose(["a"], {}).pod is None


def test_a_prompt_of_no_whole_block_goes_by_load() -> None:
    assert choose([], {"a": 1, "b": 0}).pod == "b"


def test_what_was_sent_counts_as_held_until_the_pod_is_forgotten() -> None:
    router = AibrixRouter(seed=1)
    nobody = [set(), set()]
    first = router.route([1, 2], nobody, {"a": 0, "b": 1})
    assert (first.pod, first.rule) == ("a", LEAST_LOADED)
    second = router.route([1, 2], nobody, {"a": 1, "b": 0})
    assert (second.pod, second.rule) == ("a", PREFIX)
    router.forget("a")
    assert router.route([1, 2], nobody, {"a": 1, "b": 0}).pod == "b"


def test_a_choice_is_told_whole_in_json() -> None:
    told = choose(["a"], {"a": 0, "b": 0}).to_dict()
    assert told == {
        "rule": "prefix match",
        "pods": {
            "a": {"blocks": 1, "percent": 100, "running": 0, "candidate": True},
            "b": {"blocks": 0, "percent": 0, "running": 0, "candidate": True},
        },
        "mean": 0.0,
        "deviation": 0.0,
    }


PODS = st.sampled_from("abcd")


@given(
    st.lists(st.sets(PODS), max_size=6),
    st.dictionaries(PODS, st.integers(0, 20), min_size=1),
    st.integers(0, 5),
)
def test_any_choice_is_a_ready_pod_and_the_same_for_the_same_seed(
    holders: list[set[str]], running: dict[str, int], seed: int
) -> None:
    choice = choose_aibrix(holders, running, Random(seed))
    assert choice.pod in running
    assert choice == choose_aibrix(holders, running, Random(seed))
    standing = choice.standings[choice.pod]
    if choice.rule == PREFIX:
        assert standing.candidate
        assert standing.blocks > 0
    else:
        assert running[choice.pod] == min(running.values())
