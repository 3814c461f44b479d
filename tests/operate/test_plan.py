"""The plan as a pure function: ranks apart, first sights, and what needs no engine to show."""

from __future__ import annotations

from dataclasses import replace

from kvctl.engine import EngineState, Operations, PodState, State
from kvctl.index import StreamFacts
from kvctl.operate.plan import Plan, Remembered, Verdict, plan

FACTS = StreamFacts("pod-a", 0, 4, oldest=100.0, newest=200.0, last_ts=200.0)


def engine(verdict: State = State.AWAKE, rank: int = 0, **more) -> EngineState:
    return EngineState(rank, verdict, f"it is {verdict.value}", 300.0, **more)


def run(*states: EngineState, facts=(FACTS,), memory=None, fleet=None, now=300.0) -> Plan:
    pod = PodState("pod-a", True, states, None)
    return plan(facts, {"pod-a": pod}, memory or {}, fleet=fleet, now=now)


def test_of_a_mixed_pod_only_the_sleeping_rank_is_purged() -> None:
    facts = (FACTS, replace(FACTS, rank=1))
    made = run(engine(), engine(State.SLEEPING_1, rank=1), facts=facts)
    assert [each.verdict for each in made.decisions] == [Verdict.KEEP, Verdict.PURGE]


def test_a_rank_the_metrics_do_not_name_is_unknown() -> None:
    made = run(engine(), facts=(FACTS, replace(FACTS, rank=1)))
    assert made.decisions[1].verdict is Verdict.UNKNOWN


def test_what_is_stored_at_the_cutoff_or_later_stays() -> None:
    (decision,) = run(engine(State.SLEEPING_2)).decisions
    assert decision.cutoff is not None
    assert 200.0 < decision.cutoff < 200.001


def test_a_process_younger_than_some_entries_voids_those_only() -> None:
    (decision,) = run(engine(process_start_time=150.0)).decisions
    assert (decision.verdict, decision.cutoff) == (Verdict.PURGE, 150.0)
    assert run(engine(process_start_time=99.0)).decisions[0].verdict is Verdict.KEEP


def test_at_first_sight_a_counted_sleep_is_suspect_until_the_stream_goes_on() -> None:
    slept = engine(operations=Operations(1, 1, 0, True))
    first = run(slept)
    assert first.decisions[0].verdict is Verdict.SUSPECT
    again = run(slept, memory=first.memory, now=310.0)
    assert again.decisions[0].verdict is Verdict.SUSPECT
    facts = (replace(FACTS, last_ts=305.0),)
    settled = run(slept, facts=facts, memory=again.memory, now=320.0)
    assert settled.decisions[0].verdict is Verdict.KEEP
    assert run(slept, memory=settled.memory, now=330.0).decisions[0].verdict is Verdict.KEEP


def test_a_batch_of_the_time_of_the_doubt_settles_nothing() -> None:
    slept = engine(operations=Operations(1, 1, 0, True))
    doubted = run(slept)
    facts = (replace(FACTS, last_ts=301.0),)  # the clocks may be so far apart
    assert run(slept, facts=facts, memory=doubted.memory).decisions[0].verdict is Verdict.SUSPECT


def test_awake_again_after_a_halt_is_suspect() -> None:
    memory = run(engine(State.HALTED)).memory
    assert run(engine(), memory=memory).decisions[0].verdict is Verdict.SUSPECT


def test_an_unknown_round_forgets_neither_state_nor_doubt() -> None:
    slept = engine(operations=Operations(1, 1, 0, True))
    doubted = run(slept)
    unknown = run(engine(State.UNKNOWN), memory=doubted.memory, now=400.0)
    assert unknown.decisions[0].evidence["unknown_since"] == 400.0
    later = run(engine(State.UNKNOWN), memory=unknown.memory, now=500.0)
    assert later.decisions[0].evidence["unknown_since"] == 400.0
    back = run(slept, memory=later.memory, now=600.0)
    assert back.decisions[0].verdict is Verdict.SUSPECT
    assert back.decisions[0].evidence["suspect_since"] == 300.0


def test_pods_of_a_fleet_that_was_not_read_whole_are_left_alone() -> None:
    facts = (FACTS, replace(FACTS, pod="pod-b"))
    assert [each.pod for each in run(engine(), facts=facts).decisions] == ["pod-a"]
    made = run(engine(), facts=facts, fleet={"pod-a"}, memory={("pod-b", 0): Remembered()})
    assert [each.verdict for each in made.decisions] == [Verdict.KEEP, Verdict.PURGE]
    assert ("pod-b", 0) not in made.memory
    made = run(engine(), facts=facts, fleet={"pod-a", "pod-b"})
    assert [each.pod for each in made.decisions] == ["pod-a"]
