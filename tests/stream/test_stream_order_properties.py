"""Whatever a wire does to the batches, each comes once, or is counted as missing."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings
from stream_batches import Wire

SENDS = ["send"] * 4 + ["drop", "twice"]
LIVE = [*SENDS, "deliver", "deliver", "swap"]
STEPS = st.lists(st.sampled_from([*LIVE, "ask", "answer", "restart", "lose"]), max_size=60)
SEEDS = st.integers(0, 2**32)


def seqs_of(life: list) -> list[int]:
    return [each[1] for each in life if len(each) == 2]


def assert_accounted_for(wire: Wire) -> None:
    """Within a life: batches and lost gaps follow each other from 0 on, each seq once."""
    for life in wire.lives():
        covered: list[int] = []
        announced: list[int] = []
        for each in life:
            if len(each) == 2:
                if announced:
                    assert each[1] == announced.pop(0)
                covered.append(each[1])
            elif each[2]:
                assert announced == []
                announced = list(range(each[0], each[1] + 1))
            else:
                assert announced == []
                covered += range(each[0], each[1] + 1)
        assert announced == []
        assert covered == list(range(len(covered)))
    counts = wire.sequencer.counts
    flat = [each for life in wire.lives() for each in life]
    lost = [each for each in flat if len(each) == 3 and not each[2]]
    assert counts.batches == sum(len(each) == 2 for each in flat)
    assert counts.gaps == len(lost)
    assert counts.missing == sum(last - first + 1 for first, last, _ in lost)
    assert counts.restarts == len(wire.lives()) - 1


@settings(max_examples=1500)
@given(seed=SEEDS, steps=STEPS)
def test_with_a_replay_every_seq_of_the_last_life_comes_once_in_order(
    seed: int, steps: list[str]
) -> None:
    wire = Wire(seed, replay=True)
    wire.run(steps)
    assert_accounted_for(wire)
    last = wire.lives()[-1]
    assert [each for each in last if len(each) == 2] == [
        (wire.life, seq) for seq in range(wire.published)
    ]
    assert all(each[2] for each in last if len(each) == 3)


@settings(max_examples=500)
@given(seed=SEEDS, steps=st.lists(st.sampled_from([*LIVE, "ask", "answer", "lose"]), max_size=60))
def test_batches_of_two_lives_never_stand_without_a_restart_between(
    seed: int, steps: list[str]
) -> None:
    wire = Wire(seed, replay=True)
    wire.run(steps)
    for life in wire.lives():
        assert len({each[0] for each in life if len(each) == 2}) <= 1


@settings(max_examples=1000)
@given(seed=SEEDS, steps=STEPS, kept=st.integers(1, 8))
def test_with_a_short_buffer_batches_and_gaps_account_for_every_seq(
    seed: int, steps: list[str], kept: int
) -> None:
    wire = Wire(seed, replay=True, kept=kept)
    wire.run(steps)
    assert_accounted_for(wire)
    assert wire.lives()[-1][-1] == (wire.life, wire.published - 1)


@settings(max_examples=1000)
@given(seed=SEEDS, steps=STEPS)
def test_with_a_replay_that_loses_answers_every_seq_is_accounted_for(
    seed: int, steps: list[str]
) -> None:
    wire = Wire(seed, replay=True, whole=False)
    wire.run(steps)
    assert_accounted_for(wire)
    assert wire.lives()[-1][-1] == (wire.life, wire.published - 1)


@settings(max_examples=1000)
@given(seed=SEEDS, steps=STEPS)
def test_without_a_replay_batches_and_gaps_account_for_every_seq(
    seed: int, steps: list[str]
) -> None:
    wire = Wire(seed, replay=False)
    wire.run(steps)
    assert_accounted_for(wire)
    assert wire.lives()[-1][-1] == (wire.life, wire.published - 1)


@settings(max_examples=500)
@given(seed=SEEDS, steps=st.lists(st.sampled_from(LIVE), max_size=60), replay=st.booleans())
def test_one_life_never_looks_like_two(seed: int, steps: list[str], replay: bool) -> None:
    wire = Wire(seed, replay=replay)
    wire.run(steps)
    assert wire.sequencer.counts.restarts == 0


@settings(max_examples=500)
@given(seed=SEEDS, steps=STEPS, replay=st.booleans())
def test_the_end_gives_out_everything_that_was_held(
    seed: int, steps: list[str], replay: bool
) -> None:
    wire = Wire(seed, replay=replay)
    wire.run(steps)
    wire.send("drop")
    wire.send()
    wire.deliver()
    wire.out += wire.sequencer.flush()
    assert wire.sequencer.held == 0
    assert_accounted_for(wire)
    assert wire.lives()[-1][-1] == (wire.life, wire.published - 1)
