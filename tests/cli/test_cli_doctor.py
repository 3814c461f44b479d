"""`kvctl doctor` as a user runs it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from kvctl.sim import SimConfig, SimPod

sys.path.insert(0, str(Path(__file__).parents[1] / "operate"))

from driving import complete, spec


@pytest.fixture
def pod() -> Iterator[SimPod]:
    with SimPod(SimConfig()) as pod:
        complete(pod)
        yield pod


def test_a_pod_that_is_well_ends_with_0(kvctl, pod) -> None:
    result = kvctl("doctor", "--pod", spec(pod), COLUMNS="80")
    assert result.code == 0
    assert result.out.splitlines()[0] == "pod-a"
    assert "✓ 4 blocks follow from their tokens" in result.out
    assert "! its events are maps" in result.out
    assert max(map(len, result.out.splitlines())) <= 80
    assert result.err.strip() == "10 pass, 1 warn"


def test_a_failed_check_ends_with_3_and_json_tells_it(kvctl, pod) -> None:
    requests.post(pod.api + "/pause", timeout=5).raise_for_status()
    result = kvctl("doctor", "--pod", spec(pod), "-o", "json")
    assert result.code == 3
    assert result.json["summary"]["fail"] == 1
    (failed,) = [each for each in result.json["checks"] if each["status"] == "fail"]
    assert failed["pod"] == "pod-a"
    assert failed["check"] == "state"
    assert set(failed) == {"pod", "rank", "check", "status", "detail", "remedy"}


def test_hostile_names_do_not_reach_the_terminal_as_they_are(kvctl) -> None:
    result = kvctl("doctor", "--pod", "name=a\x1b[31m,events=tcp://127.0.0.1:1,api=none",
                   "--timeout", "0.5")  # fmt: skip
    assert "\x1b" not in result.out
