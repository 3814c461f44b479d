"""States: every recorded page, and the rules that the recordings do not reach.

The verdicts over recorded pages were worked out by hand from what was done to the engines
(the recordings' README).
"""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pages import (
    AWAKE,
    COUNT,
    CREATED,
    IN_FLIGHT,
    LEVEL_1,
    LEVEL_2,
    NEITHER,
    gauge,
    operations,
    page,
    state_of,
)
from recordings import METRICS

from kvctl.engine import EngineState, Scrape, State, engine_states, parse_scrape, unknown_states
from kvctl.engine.verdict import WIPED


def recorded(name: str) -> Scrape:
    return parse_scrape((METRICS / f"{name}.txt").read_text())


RECORDED = {
    "awake": State.AWAKE,
    "after-reset": State.AWAKE,
    "sleep1": State.SLEEPING_1,
    "woke": State.AWAKE,
    "sleep2": State.SLEEPING_2,
    "pod-b-restarted": State.AWAKE,
    "fleet-b-asleep": State.SLEEPING_1,
    "fleet-b-end": State.AWAKE,
    "fleet-a-end": State.AWAKE,
    "dp2-awake": State.AWAKE,
    "dp2-asleep": State.SLEEPING_1,
    "dp2-woken": State.AWAKE,
}


def test_every_recorded_page_is_tried() -> None:
    assert {path.stem for path in METRICS.glob("*.txt")} == set(RECORDED)


@pytest.mark.parametrize(("name", "verdict"), RECORDED.items())
def test_a_recorded_page_gives_the_state_the_engine_was_in(name: str, verdict: State) -> None:
    states = engine_states(recorded(name), at=5.0)
    assert [state.rank for state in states] == ([0, 1] if name.startswith("dp2") else [0])
    for state in states:
        assert (state.verdict, state.at, state.models) == (verdict, 5.0, ("tiny",))
        assert state.reason


def test_the_recorded_pages_give_the_same_one_after_the_other() -> None:
    known: dict[int, EngineState] = {}
    for name in ("awake", "after-reset", "sleep1", "woke", "sleep2", "fleet-a-end"):
        (state,) = engine_states(recorded(name), previous=known, at=1.0)
        known = {0: state}
        assert state.verdict is RECORDED[name], name
    for name in ("dp2-awake", "dp2-asleep", "dp2-woken"):
        states = engine_states(recorded(name), previous=known, at=1.0)
        known = {state.rank: state for state in states}
        assert {state.verdict for state in states} == {RECORDED[name]}, name


def test_a_state_carries_what_the_page_says_and_its_evidence() -> None:
    state = state_of(recorded("sleep1"), is_paused=True)
    assert (state.num_gpu_blocks, state.block_size, state.prefix_hits) == (64, 32, 896)
    assert state.evidence == {
        'vllm:engine_sleep_state{engine="0",sleep_state="awake"}': 0.0,
        'vllm:engine_sleep_state{engine="0",sleep_state="weights_offloaded"}': 1.0,
        'vllm:engine_sleep_state{engine="0",sleep_state="discard_all"}': 0.0,
        f'{COUNT}{{operation="sleep"}}': 1,
        f'{COUNT}{{operation="wake"}}': 0,
        f'{COUNT}{{operation="release_kv_cache_memory"}}': 0,
        "process_start_time_seconds": 1796108281.96,
        "/is_paused": True,
    }


def test_a_new_process_is_told_by_its_start_time() -> None:
    old, new = state_of(recorded("sleep2")), state_of(recorded("pod-b-restarted"))
    assert new.restarted_since(old)
    assert not old.restarted_since(state_of(recorded("awake")))


def test_a_new_process_without_start_time_is_told_by_a_counter_that_went_back() -> None:
    awake, woken = state_of(recorded("dp2-awake")), state_of(recorded("dp2-woken"))
    assert awake.restarted_since(woken)
    assert not woken.restarted_since(awake)
    fewer = state_of(parse_scrape('vllm:prefix_cache_queries_total{engine="0"} 309\n'))
    assert fewer.restarted_since(awake)


def test_level_0_is_paused_and_not_asleep() -> None:
    assert state_of(page(NEITHER, sleep=1)).verdict is State.PAUSED
    assert state_of(page(NEITHER, sleep=3, wake=2)).verdict is State.PAUSED
    assert state_of(page(NEITHER)).verdict is State.PAUSED  # before 0.32 nothing is counted
    assert state_of(page(NEITHER, sleep=1), is_paused=True).verdict is State.PAUSED


def test_level_0_that_was_resumed_without_a_wake_is_awake() -> None:
    assert state_of(page(NEITHER, sleep=1), is_paused=False).verdict is State.AWAKE


def test_a_release_before_the_first_scrape_leaves_the_pod_suspect() -> None:
    assert state_of(page(NEITHER, sleep=1, release=1)).verdict is State.SUSPECT
    assert state_of(page(NEITHER, sleep=2, wake=1, release=1)).verdict is State.SUSPECT
    assert state_of(page(NEITHER, sleep=1, release=1), is_paused=False).verdict is State.SUSPECT


def test_a_release_since_the_last_scrape_is_released() -> None:
    for before in (page(AWAKE), page(NEITHER, sleep=1), page(AWAKE, sleep=4, wake=4, release=1)):
        then = state_of(before)
        counts = then.operations
        now = page(NEITHER, sleep=counts.sleep, wake=counts.wake, release=counts.release + 1)
        state = state_of(now, then)
        assert state.verdict is State.RELEASED
        assert state.evidence["previous state"] == then.verdict.value
        assert state.evidence[f'{COUNT}{{operation="release_kv_cache_memory"}}'] == (
            counts.release + 1
        )


def test_a_release_that_a_wake_may_have_followed_is_suspect() -> None:
    before = state_of(page(AWAKE))
    assert state_of(page(NEITHER, sleep=2, wake=1, release=1), before).verdict is State.SUSPECT


def test_no_release_since_an_awake_scrape_is_paused_whatever_was_before() -> None:
    before = state_of(page(AWAKE, sleep=2, wake=2, release=2))
    state = state_of(page(NEITHER, sleep=3, wake=2, release=2), before)
    assert state.verdict is State.PAUSED


def test_released_stays_released_until_a_wake_is_counted() -> None:
    released = state_of(page(NEITHER, sleep=1, release=1), state_of(page(AWAKE)))
    assert state_of(page(NEITHER, sleep=1, release=1), released).verdict is State.RELEASED
    assert state_of(page(NEITHER, sleep=2, release=1), released).verdict is State.RELEASED
    waking = state_of(page(NEITHER, sleep=1, wake=1, release=1), released)
    assert waking.verdict is State.WAKING
    assert state_of(page(NEITHER, sleep=1, wake=1, release=1), waking).verdict is State.WAKING
    slept = state_of(page(NEITHER, sleep=2, wake=1, release=1), released)
    assert slept.verdict is State.SUSPECT
    assert state_of(page(AWAKE, sleep=1, wake=2, release=1), waking).verdict is State.AWAKE


def test_suspect_stays_suspect_until_the_counters_tell_more() -> None:
    suspect = state_of(page(NEITHER, sleep=1, release=1))
    assert state_of(page(NEITHER, sleep=1, release=1), suspect).verdict is State.SUSPECT
    released = state_of(page(NEITHER, sleep=1, release=2), suspect)
    assert released.verdict is State.RELEASED
    woken = state_of(page(NEITHER, sleep=1, wake=1, release=1), suspect)
    assert woken.verdict is State.WAKING  # a wake from level 0 would have been a whole one
    slept = state_of(page(NEITHER, sleep=2, wake=1, release=1), suspect)
    assert slept.verdict is State.SUSPECT


def test_level_0_asked_of_a_sleeping_engine_does_not_make_it_paused() -> None:
    # Seen on vLLM 0.32: sleep 1, then sleep 0, and the gauge says 0/0/0 with the cache wiped.
    asleep = state_of(page(LEVEL_2, sleep=1))
    assert state_of(page(NEITHER, sleep=2), asleep).verdict is State.SLEEPING_2
    assert state_of(page(NEITHER, sleep=2)).verdict is State.SUSPECT
    assert state_of(page(NEITHER, sleep=2), state_of(page(AWAKE))).verdict is State.SUSPECT
    assert state_of(page(NEITHER, sleep=2, wake=1), asleep).verdict is State.SUSPECT
    uncounted = state_of(page(LEVEL_1))
    assert state_of(page(NEITHER), uncounted).verdict is State.SUSPECT


def test_a_partial_wake_is_told_from_sleep_by_the_scrape_before() -> None:
    for rows in (LEVEL_1, LEVEL_2):
        asleep = state_of(page(rows, sleep=3, wake=2))
        assert asleep.verdict in (State.SLEEPING_1, State.SLEEPING_2)
        waking = state_of(page(rows, sleep=3, wake=3), asleep)
        assert waking.verdict is State.WAKING
        assert state_of(page(rows, sleep=3, wake=3), waking).verdict is State.WAKING
        again = state_of(page(rows, sleep=4, wake=3), waking)
        assert again.verdict is asleep.verdict


def test_a_wake_and_a_sleep_since_the_last_scrape_is_asleep() -> None:
    asleep = state_of(page(LEVEL_1, sleep=3, wake=2))
    assert state_of(page(LEVEL_2, sleep=4, wake=3), asleep).verdict is State.SLEEPING_2
    awake = state_of(page(AWAKE, sleep=3, wake=3))
    assert state_of(page(LEVEL_1, sleep=4, wake=4), awake).verdict is State.SLEEPING_1


def made(rows: tuple[float, ...], created: dict[str, float], **counts: float) -> Scrape:
    return parse_scrape(gauge(rows) + operations(**counts) + operations(CREATED, **created))


def test_one_scrape_tells_what_came_after_the_only_sleep() -> None:
    created = {"sleep": 1000.5, "wake": 1003.25}
    assert state_of(made(LEVEL_1, created, sleep=1, wake=2)).verdict is State.WAKING
    assert state_of(made(LEVEL_1, created, sleep=2, wake=2)).verdict is State.SLEEPING_1
    earlier = {"sleep": 1000.5, "wake": 999.0}
    assert state_of(made(LEVEL_1, earlier, sleep=1, wake=2)).verdict is State.SLEEPING_1
    release = {"sleep": 1000.5, "release": 1001.0}
    assert state_of(made(NEITHER, release, sleep=1, release=1)).verdict is State.RELEASED
    assert state_of(made(NEITHER, release, sleep=2, release=1)).verdict is State.SUSPECT
    assert state_of(made(NEITHER, release, sleep=1, wake=1, release=1)).verdict is State.SUSPECT
    before = {"sleep": 1000.5, "release": 1000.0}
    assert state_of(made(NEITHER, before, sleep=1, release=1)).verdict is State.SUSPECT


def test_an_operation_under_way_is_told() -> None:
    waking = parse_scrape(gauge(LEVEL_1) + operations(IN_FLIGHT, wake=1, sleep=0))
    assert state_of(waking).verdict is State.WAKING
    falling = state_of(parse_scrape(gauge(AWAKE) + operations(IN_FLIGHT, sleep=1)))
    assert falling.verdict is State.AWAKE
    assert "sleep under way" in falling.reason


def test_awake_by_the_gauge_but_paused_is_halted() -> None:
    assert state_of(page(AWAKE), is_paused=False).verdict is State.AWAKE
    halted = state_of(page(AWAKE), is_paused=True)
    assert halted.verdict is State.HALTED
    assert "/is_paused" in halted.reason
    assert state_of(page(AWAKE), is_sleeping=True).verdict is State.HALTED
    # The pause probably wiped the cache, so a sleep at level 0 after it keeps nothing for sure.
    assert state_of(page(NEITHER, sleep=1), halted).verdict is State.SUSPECT


def test_another_process_has_no_past() -> None:
    before = state_of(page(LEVEL_1, sleep=1, wake=0))
    now = page(LEVEL_1, sleep=1, wake=1, started=1.7e9 + 60)
    state = state_of(now, before)
    assert state.verdict is State.SLEEPING_1
    assert "previous state" not in state.evidence


def test_without_a_gauge_is_sleeping_decides_what_it_can() -> None:
    old = parse_scrape('vllm:num_requests_running{model_name="m"} 0\n')
    assert state_of(old, is_sleeping=False).verdict is State.AWAKE
    asleep = state_of(old, is_sleeping=True)
    assert asleep.verdict is State.SUSPECT
    assert "level" in asleep.reason
    assert state_of(old, is_sleeping=False, is_paused=True).verdict is State.HALTED
    unknown = state_of(old)
    assert unknown.verdict is State.UNKNOWN
    assert "engine_sleep_state" in unknown.reason
    nothing = engine_states(Scrape(), is_sleeping=None, at=1.0)
    assert [(state.rank, state.verdict) for state in nothing] == [(0, State.UNKNOWN)]


@pytest.mark.parametrize("is_sleeping", [None, True, False])
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (gauge((1,)), "lacks its row weights_offloaded"),
        (gauge((0, 0)), "lacks its row discard_all"),
        (gauge((1, 1, 0)), "more than one state"),
        (gauge((0, 1, 1)), "more than one state"),
        (gauge((0.5, 0, 0)), "neither 0 nor 1"),
        (gauge((2, 0, 0)), "neither 0 nor 1"),
        (gauge(AWAKE, model="a") + gauge(LEVEL_1, model="b"), "differs between the models"),
        (gauge(AWAKE, model="a") + gauge((0, 0), model="b"), "lacks its row"),
        (
            gauge(NEITHER) + gauge((1,)).replace("awake", "hibernating"),
            "a state that kvctl does not know",
        ),
    ],
)
def test_a_gauge_that_makes_no_sense_is_unknown_and_never_asleep(
    text: str, why: str, is_sleeping: bool | None
) -> None:
    state = state_of(parse_scrape(text), is_sleeping=is_sleeping)
    assert state.verdict is State.UNKNOWN
    assert why in state.reason


def test_ranks_and_models_are_kept_apart() -> None:
    scrape = parse_scrape(
        gauge(AWAKE, rank=0, model="a")
        + gauge(AWAKE, rank=0, model="b")
        + gauge(LEVEL_2, rank=3, model="a")
    )
    first, second = engine_states(scrape, at=1.0)
    assert (first.rank, first.verdict, first.models) == (0, State.AWAKE, ("a", "b"))
    assert (second.rank, second.verdict, second.models) == (3, State.SLEEPING_2, ("a",))
    assert 'vllm:engine_sleep_state{engine="0",model_name="b",sleep_state="awake"}' in (
        first.evidence
    )


def test_a_rank_new_to_the_page_has_no_past() -> None:
    before = {0: state_of(page(LEVEL_1, sleep=1))}
    scrape = parse_scrape(
        gauge(LEVEL_1) + gauge(LEVEL_1, rank=1) + operations(sleep=1, wake=1)
        + "process_start_time_seconds 1.7e9\n"
    )  # fmt: skip
    states = engine_states(scrape, previous=before, at=2.0)
    assert [state.verdict for state in states] == [State.WAKING, State.SLEEPING_1]


def test_unknown_states_share_a_reason() -> None:
    states = unknown_states([2, 0, 2], "nobody answered", at=3.0)
    assert [state.rank for state in states] == [0, 2]
    assert {(state.verdict, state.reason, state.at) for state in states} == {
        (State.UNKNOWN, "nobody answered", 3.0)
    }


SMALL = st.integers(0, 3)


@given(
    st.lists(
        st.tuples(st.sampled_from([AWAKE, LEVEL_1, LEVEL_2, NEITHER]), SMALL, SMALL, SMALL),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from([None, True, False]),
)
def test_any_history_gives_a_state_that_fits_the_gauge(
    history: list[tuple[tuple[int, ...], int, int, int]], is_paused: bool | None
) -> None:
    fits = {
        AWAKE: {State.AWAKE, State.HALTED},
        LEVEL_1: {State.SLEEPING_1, State.WAKING},
        LEVEL_2: {State.SLEEPING_2, State.WAKING},
        NEITHER: set(State) - {State.HALTED, State.UNKNOWN},
    }
    state, sleep, wake, release = None, 0, 0, 0
    for rows, slept, woke, released in history:
        sleep, wake, release = sleep + slept, wake + woke, release + released
        scrape = page(rows, sleep=sleep, wake=wake, release=release)
        state = state_of(scrape, state, is_paused=is_paused)
        assert state.verdict in fits[rows]
        assert state.reason


class ModelEngine:
    """vLLM 0.32's gauge, counters and cache, by the rules of its own code, one rank."""

    def __init__(self) -> None:
        self.rows, self.counts = AWAKE, {"sleep": 0, "wake": 0, "release": 0}
        self.asleep: set[str] = set()
        self.paused = False
        self.ever_wiped = False

    def do(self, operation: str) -> None:
        name = operation.partition("-")[0]
        if name.startswith("sleep"):
            self._sleep(int(name[-1]))
        elif name == "wake":
            self.counts["wake"] += 1
            self.asleep -= {"weights"} if operation == "wake-weights" else {"weights", "kv_cache"}
            if not self.asleep:
                self.rows, self.paused = AWAKE, False
        else:
            self.counts["release"] += 1  # failed ones are counted as well
            if self.paused and not self.asleep:
                self.ever_wiped, self.asleep, self.rows = True, {"kv_cache"}, NEITHER

    def _sleep(self, level: int) -> None:
        self.counts["sleep"] += 1
        self.paused = True
        self.rows = (NEITHER, LEVEL_1, LEVEL_2)[level]
        if level:
            self.ever_wiped, self.asleep = True, {"weights", "kv_cache"}

    def state(self, before: EngineState | None = None) -> EngineState:
        return state_of(page(self.rows, **self.counts), before, is_paused=self.paused)


OPERATIONS = ("sleep0", "sleep1", "sleep2", "wake", "wake-weights", "release")


def test_scraped_after_every_operation_a_state_is_wiped_when_the_cache_is() -> None:
    for sequence in product(OPERATIONS, repeat=4):
        engine = ModelEngine()
        state = engine.state()
        for operation in sequence:
            engine.do(operation)
            state = engine.state(state)
            assert (state.verdict in WIPED) == bool(engine.asleep), sequence
            assert state.verdict is not State.SUSPECT, sequence


def test_scraped_before_and_after_a_paused_pod_has_kept_its_cache() -> None:
    seen = set()
    for sequence in product(OPERATIONS, repeat=4):
        engine = ModelEngine()
        before = engine.state()
        for operation in sequence:
            engine.do(operation)
        verdict = engine.state(before).verdict
        seen.add(verdict)
        if verdict is State.PAUSED:
            assert not engine.ever_wiped, sequence
        if verdict in WIPED and "release" not in sequence:
            assert engine.asleep, sequence
        if engine.asleep:
            assert verdict in WIPED | {State.SUSPECT}, sequence
    assert {State.PAUSED, State.SUSPECT, State.RELEASED, State.SLEEPING_1} <= seen


def test_scraped_once_a_pod_said_to_be_wiped_is() -> None:
    for sequence in product(OPERATIONS, repeat=4):
        engine = ModelEngine()
        for operation in sequence:
            engine.do(operation)
        if engine.state().verdict in WIPED:
            assert engine.asleep, sequence
