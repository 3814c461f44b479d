"""The fleet as it goes, over simulated engines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests
from driving import complete, fleet_pod

from kvctl.operate.top import FleetWatch, TopRow
from kvctl.sim import SimConfig, SimPod


@pytest.fixture
def pod() -> Iterator[SimPod]:
    with SimPod(SimConfig()) as pod:
        complete(pod)
        yield pod


def look_until(watch: FleetWatch, wanted) -> TopRow:
    for _ in range(100):
        (row,) = watch.look(0.1)
        if wanted(row):
            return row
    raise AssertionError(f"never: the last look was {row}")


def test_what_was_before_is_no_rate_and_what_comes_is(pod: SimPod) -> None:
    with FleetWatch([fleet_pod(pod)], api_key=None, timeout=5.0) as watch:
        watch.settle(10.0)
        (row,) = watch.look(0.2)
        assert (row.entries, row.capacity, row.state) == (4, 63, "awake")
        assert (row.events, row.stored, row.removed) == (0, 0, 0)
        assert row.hit_rate == 0.0
        complete(pod, list(range(700, 764)))
        row = look_until(watch, lambda row: row.stored > 0)
        assert row.entries == 8
        assert row.last_clear is None
        assert watch.look(0.1)[0].stored == 0


def test_the_hit_rate_is_of_what_was_asked_since(pod: SimPod) -> None:
    with FleetWatch([fleet_pod(pod)], api_key=None, timeout=5.0) as watch:
        watch.settle(10.0)
        watch.look(0.1)
        complete(pod)
        row = look_until(watch, lambda row: row.hit_rate != 0.0)
        assert row.hit_rate == pytest.approx(48 / 64)


def test_states_and_clears_are_followed(pod: SimPod) -> None:
    with FleetWatch([fleet_pod(pod)], api_key=None, timeout=5.0) as watch:
        watch.settle(10.0)
        requests.post(pod.api + "/sleep", timeout=5).raise_for_status()
        look_until(watch, lambda row: row.state == "sleeping-1")
        requests.post(pod.api + "/wake_up", timeout=5).raise_for_status()
        complete(pod)
        row = look_until(watch, lambda row: row.state == "awake" and row.last_clear is not None)
        assert row.entries == 4


def test_a_pod_that_dies_holds_nothing_up(pod: SimPod) -> None:
    with FleetWatch([fleet_pod(pod)], api_key=None, timeout=1.0) as watch:
        watch.settle(10.0)
        pod.close()
        assert look_until(watch, lambda row: row.state == "unknown").entries == 4


def test_json_leaves_out_what_is_not_known() -> None:
    row = TopRow("a", 0, "unknown", 1.25, 0, 0, 3, None, 0, None, None)
    assert row.to_dict() == {
        "pod": "a", "rank": 0, "state": "unknown", "events_per_s": 1.2, "stored_per_s": 0,
        "removed_per_s": 0, "entries": 3, "missing": 0,
    }  # fmt: skip
