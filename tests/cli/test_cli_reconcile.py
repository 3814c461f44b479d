"""`kvctl reconcile` as a user runs it."""

from __future__ import annotations

import json
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


@pytest.fixture
def path(kvctl, pod: SimPod, tmp_path: Path) -> Path:
    """An index that holds what the pod told."""
    path = tmp_path / "x.sqlite"
    told = kvctl("tail", "--pod", spec(pod, api="none"), "--index", path, "--count", "1")
    assert told.code == 0
    return path


def put_to_sleep(pod: SimPod) -> None:
    requests.post(pod.api + "/sleep", timeout=10).raise_for_status()


def entries(kvctl, path: Path) -> int:
    return kvctl("index", "show", "--index", path, "-o", "json").json["entries"]


def test_without_drift_it_ends_with_0(kvctl, pod, path) -> None:
    result = kvctl("reconcile", "--pod", spec(pod), "--index", path)
    assert result.code == 0
    assert result.out.splitlines()[1].split()[:6] == ["pod-a", "0", "awake", "4", "0", "keep"]
    assert "not covered here" in result.err


def test_a_dry_run_shows_the_drift_and_leaves_it(kvctl, pod, path) -> None:
    put_to_sleep(pod)
    result = kvctl("reconcile", "--pod", spec(pod), "--index", path, "--dry-run", "-o", "json")
    assert result.code == 3
    told = result.json
    assert set(told) == {"dry_run", "pods", "summary"}
    assert told["dry_run"] is True
    assert told["summary"] == {
        "stale_entries": 4,
        "suspect_entries": 0,
        "purged_entries": 0,
        "unknown": 0,
    }
    assert set(told["pods"][0]) == {
        "pod", "rank", "state", "entries", "stale_entries", "verdict", "reason", "evidence",
    }  # fmt: skip
    assert entries(kvctl, path) == 4


def test_a_purge_wants_consent(kvctl, terminal, pod, path) -> None:
    put_to_sleep(pod)
    refused = kvctl("reconcile", "--pod", spec(pod), "--index", path)
    assert refused.code == 2
    assert "--yes" in refused.err
    assert entries(kvctl, path) == 4
    asked = terminal("reconcile", "--pod", spec(pod), "--index", path, columns=160)
    asked.wait_for("Purge 4 entries from")
    asked.send("n\n")
    assert asked.end() == 1
    assert entries(kvctl, path) == 4
    done = kvctl("reconcile", "--pod", spec(pod), "--index", path, "--yes")
    assert done.code == 0
    assert "4 stale entries, 4 purged" in done.err
    assert entries(kvctl, path) == 0


def test_a_pod_that_does_not_answer_is_unknown_and_kept(kvctl, pod, path) -> None:
    pod.close()
    result = kvctl("reconcile", "--pod", spec(pod), "--index", path, "--yes", "--timeout", "1")
    assert result.code == 3
    assert "unknown" in result.out
    assert entries(kvctl, path) == 4


def test_a_plan_that_purges_too_much_is_refused(kvctl, pod, path) -> None:
    put_to_sleep(pod)
    result = kvctl("reconcile", "--pod", spec(pod), "--index", path, "--yes", "--max-purge", "50")
    assert result.code == 1
    assert "more than 50 %" in result.err
    assert entries(kvctl, path) == 4


def test_a_context_that_no_longer_names_a_pod_lets_it_go(kvctl, pod, path) -> None:
    with SimPod(SimConfig(name="pod-b")) as other:
        kvctl("config", "set-pod", spec(other), "--context", "lab")
        named = kvctl("reconcile", "pod-b", "--index", path, "--yes")
        assert named.code == 0
        assert entries(kvctl, path) == 4
        whole = kvctl("reconcile", "--index", path, "--yes", "-o", "json")
        assert whole.json["pods"][0]["state"] == "gone"
        assert entries(kvctl, path) == 0


def test_watch_goes_on_through_everything_until_stopped(start, kvctl, pod, path) -> None:
    running = start(
        "reconcile", "--pod", spec(pod), "--index", path, "--watch", "--interval", "0.2", "--yes",
        "--timeout", "1", "-o", "jsonl",
    )  # fmt: skip

    def summaries() -> list[dict]:
        return [json.loads(line)["summary"] for line in running.out.splitlines()]

    running.wait_until(lambda: len(summaries()) >= 2)
    put_to_sleep(pod)
    running.wait_until(lambda: any(each["purged_entries"] == 4 for each in summaries()))
    pod.close()
    running.wait_until(lambda: summaries()[-1]["unknown"] == 1)
    assert running.interrupt() == 130
    assert entries(kvctl, path) == 0


def test_watch_purges_only_with_yes(kvctl, pod, path) -> None:
    result = kvctl("reconcile", "--pod", spec(pod), "--index", path, "--watch")
    assert result.code == 2
    assert "--yes" in result.err


def test_an_index_that_is_not_there_is_no_index_without_drift(kvctl, pod, tmp_path) -> None:
    result = kvctl("reconcile", "--pod", spec(pod), "--index", tmp_path / "none")
    assert result.code == 1
    assert "there is no index" in result.err
