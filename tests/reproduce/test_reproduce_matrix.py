"""The experiment over simulated engines, and the ways in which it must be able to fail."""

from __future__ import annotations

import threading

import pytest
import zmq

from kvctl.events import Batch, Record
from kvctl.reproduce.cell import run_cell
from kvctl.reproduce.matrix import Choices, Matrix, run_simulated, simulated_pair
from kvctl.reproduce.scenario import HANDLERS, Delivery, Handler, Scenario, Trigger

NOOP, EVENT, RECONCILE, FULL = HANDLERS
DELIVERED, LOST = Delivery

# Which handlers leave a row a bug: the knowledge the product is built on.
KNOWN = {
    (Trigger.RESET_IDLE, DELIVERED): {NOOP, EVENT, RECONCILE},
    (Trigger.RESET_IDLE, LOST): {NOOP, EVENT, RECONCILE},
    (Trigger.RESET_THEN_TRAFFIC, DELIVERED): {NOOP},
    (Trigger.RESET_THEN_TRAFFIC, LOST): {NOOP, EVENT, RECONCILE},
    (Trigger.RESET_RUNNING, DELIVERED): {NOOP},
    (Trigger.RESET_RUNNING, LOST): {NOOP, EVENT, RECONCILE},
    (Trigger.SLEEP_1, DELIVERED): {NOOP, EVENT},
    (Trigger.SLEEP_1, LOST): {NOOP, EVENT},
    (Trigger.SLEEP_2, DELIVERED): {NOOP, EVENT},
    (Trigger.SLEEP_2, LOST): {NOOP, EVENT},
    (Trigger.SLEEP_1_WAKE, DELIVERED): {NOOP, EVENT, RECONCILE},
    (Trigger.SLEEP_1_WAKE, LOST): {NOOP, EVENT, RECONCILE},
    (Trigger.OOM_RESET, DELIVERED): {NOOP},
    (Trigger.OOM_RESET, LOST): {NOOP, EVENT, RECONCILE, FULL},
    (Trigger.RESTART, DELIVERED): {NOOP, EVENT},
    (Trigger.RESTART, LOST): {NOOP, EVENT},
    (Trigger.SLEEP_0, DELIVERED): set(),
    (Trigger.SLEEP_0, LOST): set(),
    (Trigger.NO_TRIGGER, DELIVERED): set(),
    (Trigger.NO_TRIGGER, LOST): set(),
}


def bugs(matrix: Matrix) -> dict[tuple[Trigger, Delivery], set[Handler]]:
    found: dict[tuple[Trigger, Delivery], set[Handler]] = {}
    for each in matrix.results:
        row = found.setdefault((each.scenario.trigger, each.scenario.delivery), set())
        if each.is_bug:
            row.add(each.scenario.handler)
    return found


@pytest.mark.parametrize("seed", [0, 1])
def test_the_matrix_is_as_it_is_known_to_be_whatever_the_seed(seed: int) -> None:
    done = []
    matrix = run_simulated(Choices(seed=seed), done.append)
    assert bugs(matrix) == KNOWN
    assert matrix.reproduced
    assert matrix.surprises() == []
    assert len(done) == 81
    for each in matrix.results:
        # A wiped pod had nothing, whatever was believed of it; B had its half.
        if each.scenario.trigger.wipes:
            assert {each.hit_tokens, each.other_hit_tokens} == {0, 32}
        else:
            assert (each.hit_tokens, each.other_hit_tokens) == (64, 32)
        assert (each.stale_entries == 4) == (each.is_bug)
    assert matrix.blind is not None
    assert (matrix.blind.hit_tokens, matrix.blind.other_hit_tokens) == (32, 64)


def rows(**choices) -> dict[tuple[Trigger, Delivery], set[Handler]]:
    flush = choices.pop("flush", None)
    return bugs(run_simulated(Choices(**choices), flush=flush))


def test_an_engine_that_flushes_at_once_needs_the_event_only() -> None:
    """The matrix follows the engines: were vLLM to flush at once, #2385 would be enough."""
    found = rows(
        triggers=(Trigger.RESET_IDLE, Trigger.SLEEP_1, Trigger.SLEEP_1_WAKE), flush="immediate"
    )
    for trigger in (Trigger.RESET_IDLE, Trigger.SLEEP_1, Trigger.SLEEP_1_WAKE):
        assert found[trigger, DELIVERED] == {NOOP}
    assert found[Trigger.SLEEP_1, LOST] == {NOOP, EVENT}
    assert found[Trigger.RESET_IDLE, LOST] == {NOOP, EVENT, RECONCILE}


def test_an_engine_that_never_clears_makes_the_event_worthless() -> None:
    found = rows(
        triggers=(Trigger.RESET_THEN_TRAFFIC, Trigger.SLEEP_1),
        deliveries=(DELIVERED,),
        flush="never-clear",
    )
    assert found[Trigger.RESET_THEN_TRAFFIC, DELIVERED] == {NOOP, EVENT, RECONCILE}
    assert found[Trigger.SLEEP_1, DELIVERED] == {NOOP, EVENT}


def test_in_aibrix_scope_no_purge_reaches_a_lora() -> None:
    found = rows(
        triggers=(Trigger.RESET_THEN_TRAFFIC, Trigger.SLEEP_1, Trigger.NO_TRIGGER),
        deliveries=(DELIVERED,),
        aibrix_scope=True,
    )
    assert found[Trigger.RESET_THEN_TRAFFIC, DELIVERED] == set(HANDLERS)
    assert found[Trigger.SLEEP_1, DELIVERED] == set(HANDLERS)
    assert found[Trigger.NO_TRIGGER, DELIVERED] == set()


def test_the_longest_prefix_router_falls_for_it_too() -> None:
    found = rows(triggers=(Trigger.SLEEP_1,), deliveries=(DELIVERED,), router="longest")
    assert found[Trigger.SLEEP_1, DELIVERED] == {NOOP, EVENT}


def test_a_cell_tells_its_story_and_keeps_its_events() -> None:
    kept: list[Record] = []
    scenario = Scenario(Trigger.RESET_THEN_TRAFFIC, LOST, EVENT)
    with simulated_pair(lora=False) as (a, b):
        result = run_cell(scenario, a, b, keep=kept.append)
    story = "\n".join(result.story)
    for words in ("warm: pod-a has 64 of 65", "trigger: reset-then-traffic", "lost on the way",
                  "router: sends the prefix to pod-a", "pod-a had 0 of 65"):  # fmt: skip
        assert words in story
    batches = [record for record in kept if isinstance(record, Batch)]
    assert {batch.wire.pod for batch in batches} == {"pod-a", "pod-b"}
    assert result.to_dict()["verdict"] == "bug"
    assert result.to_dict()["cold_miss"] is True


def test_nothing_is_left_running() -> None:
    before = threading.active_count()
    rows(triggers=(Trigger.SLEEP_2,), deliveries=(DELIVERED,))
    assert threading.active_count() <= before
    assert zmq.Context.instance()  # the experiment has contexts of its own


def test_what_is_not_as_known_is_named() -> None:
    matrix = run_simulated(
        Choices(triggers=(Trigger.RESET_IDLE,), handlers=(FULL,), deliveries=(DELIVERED,))
    )
    assert matrix.surprises() == []
    (result,) = matrix.results
    scenario = Scenario(Trigger.RESET_IDLE, DELIVERED, NOOP)
    wrong = type(result)(scenario, "pod-b", "", "", 0, 32, 0, ())
    assert Matrix((wrong,)).surprises() == [f"{scenario.name}: no bug without any fix"]
