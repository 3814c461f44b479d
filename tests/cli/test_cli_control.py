"""`kvctl reset`, `sleep`, `wake`, `pods`, `sim` and `config` as a user runs them."""

from __future__ import annotations

import json
import re
import signal
import socket
import stat
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


def test_a_reset_shows_its_steps_and_ends_with_3_where_entries_stay(kvctl, pod) -> None:
    result = kvctl("reset", "--pod", spec(pod), "--yes", "--timeout", "0.3")
    assert result.code == 3
    lines = [line.split()[:2] for line in result.out.splitlines()]
    assert lines[0] == ["pod-a:", "reset"]
    assert [line[0] for line in lines[1:]] == ["state", "index", "call", "clear", "check", "stale:"]
    assert "stale: 4 entries before, 4 of them left" in result.out


def test_json_has_the_documented_shape(kvctl, pod) -> None:
    result = kvctl("reset", "--pod", spec(pod), "--yes", "--nudge", "--timeout", "1", "-o", "json")
    assert result.code == 0
    report = result.json
    assert set(report) == {"pod", "action", "steps", "entries_before", "entries_after", "verdict"}
    assert (report["pod"], report["action"], report["verdict"]) == ("pod-a", "reset", "verified")
    assert all(set(each) == {"name", "ok", "detail"} for each in report["steps"])


def test_several_pods_are_a_list_and_the_worst_decides_the_code(kvctl, pod) -> None:
    with SimPod(SimConfig(name="pod-b", dev_mode=False)) as other:
        result = kvctl(
            "reset", "--pod", spec(pod), "--pod", spec(other), "--yes", "--nudge",
            "--timeout", "1", "-o", "json",
        )  # fmt: skip
    assert result.code == 1
    assert [(each["pod"], each["verdict"]) for each in result.json] == [
        ("pod-a", "verified"),
        ("pod-b", "failed"),
    ]


def test_a_dry_run_does_nothing(kvctl, pod) -> None:
    for command in (["reset"], ["sleep", "--level", "2"], ["wake"]):
        result = kvctl(*command, "--pod", spec(pod), "--dry-run")
        assert result.code == 0
        assert result.out.startswith("pod-a: would")
        told = kvctl(*command, "--pod", spec(pod), "--dry-run", "-o", "json").json
        assert (told["pod"], told["action"], told["dry_run"]) == ("pod-a", command[0], True)
    assert len(pod.engine.cache()[0]["blocks"]) == 4
    assert not pod.engine.is_sleeping


def test_without_a_terminal_consent_must_be_given(kvctl, pod) -> None:
    for command in ("reset", "sleep"):
        result = kvctl(command, "--pod", spec(pod))
        assert result.code == 2
        assert "--yes" in result.err
    assert len(pod.engine.cache()[0]["blocks"]) == 4


def test_in_a_terminal_it_asks_first(terminal, pod) -> None:
    refused = terminal("reset", "--pod", spec(pod), columns=120)
    refused.wait_for("Go ahead? [y/N]")
    refused.send("n\n")
    assert refused.end() == 1
    assert "nothing was done" in refused.text
    assert len(pod.engine.cache()[0]["blocks"]) == 4
    agreed = terminal("reset", "--pod", spec(pod), "--nudge", "--timeout", "1", columns=120)
    agreed.wait_for("Go ahead? [y/N]")
    agreed.send("y\n")
    assert agreed.end() == 0
    assert "verified: 4 entries before, 0 of them left" in agreed.text


def test_sleep_and_wake_follow_each_other(kvctl, pod) -> None:
    slept = kvctl("sleep", "--pod", spec(pod), "--yes", "--purge", "-o", "json")
    assert (slept.code, slept.json["verdict"]) == (0, "purged")
    woken = kvctl("wake", "--pod", spec(pod), "--nudge", "--timeout", "1", "-o", "json")
    assert (woken.code, woken.json["verdict"]) == (0, "awake")
    kept = kvctl("sleep", "--pod", spec(pod), "--yes", "--level", "0", "-o", "json")
    assert (kept.code, kept.json["verdict"]) == (0, "kept")


def test_a_bad_level_or_mode_is_a_usage_error(kvctl, pod) -> None:
    for bad in (["--level", "3"], ["--mode", "gently"]):
        result = kvctl("sleep", "--pod", spec(pod), "--yes", *bad)
        assert result.code == 2
        assert len(result.err.splitlines()) == 1


def test_a_pod_without_an_api_cannot_be_driven(kvctl, pod) -> None:
    result = kvctl("reset", "--pod", spec(pod, api="none"), "--yes")
    assert result.code == 2
    assert "pod-a has no api" in result.err


def test_a_wanted_token_is_named_and_a_wrong_one_never_shown(kvctl) -> None:
    with SimPod(SimConfig(api_key="right")) as pod:
        arguments = ["reset", "--pod", spec(pod), "--yes", "--nudge", "--timeout", "0.3"]
        without = kvctl(*arguments)
        assert "KVCTL_API_KEY" in without.out
        wrong = kvctl(*arguments, KVCTL_API_KEY="wr0ng-s3cret")
        assert "the token is refused" in wrong.out
        assert "wr0ng-s3cret" not in wrong.out + wrong.err
        right = kvctl(*arguments, KVCTL_API_KEY="right")
        assert "verified" in right.out


def test_pods_shows_every_pod_reachable_or_not(kvctl, pod) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    gone = f"name=gone,api=http://127.0.0.1:{port},events=tcp://127.0.0.1:9,replay=none"
    complete(pod)
    result = kvctl("pods", "--pod", spec(pod), "--pod", gone, "--timeout", "2")
    assert result.code == 0
    rows = [line.split() for line in result.out.splitlines()]
    assert rows[0][:5] == ["POD", "RANK", "MODEL", "STATE", "ENTRIES"]
    assert rows[1] == ["pod-a", "0", "tiny", "awake", "4", "63", "38%", "1", "0", "ok"]
    assert rows[2][:4] == ["gone", "0", "-", "unknown"]
    assert rows[2][-1] == "down"
    assert "gone: unknown" in result.err
    told = kvctl("pods", "--pod", spec(pod), "--pod", gone, "--timeout", "2", "-o", "json").json
    first, second = told["pods"]
    assert (first["state"], first["entries"], first["capacity"]) == ("awake", 4, 63)
    assert first["stream"]["replay"] == "ok"
    assert (second["reachable"], second["state"]) == (False, "unknown")
    nobody = kvctl("pods", "--pod", gone, "--timeout", "1")
    assert nobody.code == 1


@pytest.mark.parametrize(
    ("calls", "state"),
    [
        ([("/sleep", {"level": 1})], "sleeping-1"),
        ([("/sleep", {"level": 2})], "sleeping-2"),
        ([("/sleep", {"level": 0})], "paused"),
        ([("/pause", {})], "halted"),
        ([("/sleep", {"level": 0}), ("/release_kv_cache_memory", {})], "released"),
    ],
)
def test_pods_tells_every_state(kvctl, pod, calls: list, state: str) -> None:
    for path, params in calls:
        requests.post(pod.api + path, params=params, timeout=10).raise_for_status()
    told = kvctl("pods", "--pod", spec(pod), "-o", "json").json["pods"]
    assert [each["state"] for each in told] == [state]


def test_ranks_are_rows_of_their_own(kvctl) -> None:
    with SimPod(SimConfig(ranks=2)) as pod:
        complete(pod, rank=1)
        told = kvctl("pods", "--pod", spec(pod), "-o", "json").json["pods"]
    assert [(each["rank"], each["entries"]) for each in told] == [(0, 0), (1, 4)]


def test_sim_tells_its_addresses_in_one_line_and_runs_until_stopped(start, kvctl) -> None:
    running = start("sim", "--pods", "2", "--dp", "2", "-o", "json")
    running.wait_until(lambda: running.out.endswith("\n"))
    (line,) = running.out.splitlines()
    told = json.loads(line)["pods"]
    assert [each["name"] for each in told] == ["pod-a", "pod-b"]
    assert all(len(each["events"]) == len(each["replay"]) == 2 for each in told)
    body = {"prompt": "hello world, hello fleet", "max_tokens": 1}
    for each in told:
        assert requests.post(f"{each['api']}/v1/completions", json=body, timeout=10).ok
    pod = told[0]
    flags = f"name=pod-a,events={'|'.join(pod['events'])},replay={'|'.join(pod['replay'])},api=none"
    received = kvctl("tail", "--pod", flags, "--count", "1")
    assert received.objects[0]["type"] == "BlockStored"
    assert running.interrupt() == 0


@pytest.mark.parametrize(("from_base", "what"), [(0, "port"), (1, "tcp://127.0.0.1:")])
def test_sim_on_a_port_in_use_says_so(kvctl, from_base: int, what: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = kvctl("sim", "--port-base", str(port - from_base))
    assert result.code == 1
    assert re.search(f"cannot bind {what} ?{port}: Address already in use \\(--", result.err)
    assert len(result.err.splitlines()) == 1


def test_sim_stops_on_sigterm_too(start) -> None:
    running = start("sim", "--pods", "1")
    running.wait_until(lambda: "all are ready" in running.err)
    assert running.interrupt(signal.SIGTERM) == 0


def test_a_context_names_the_fleet(kvctl, pod, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    assert kvctl("config", "set-pod", spec(pod), "--context", "lab").code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert kvctl("config", "set-pod", "name=pod-b,host=10.0.0.8", "--context", "prod").code == 0
    assert "the current context is lab" in kvctl("config", "use-context", "lab").err
    view = kvctl("config", "view")
    assert [line.split()[:3] for line in view.out.splitlines()[1:]] == [
        ["*", "lab", "pod-a"],
        ["prod", "pod-b", "-"],
    ]
    told = kvctl("config", "view", "-o", "json").json
    assert told["current-context"] == "lab"
    assert told["contexts"]["prod"]["pods"]["pod-b"]["api"] == "http://10.0.0.8:8000"
    assert [each["pod"] for each in kvctl("pods", "-o", "json").json["pods"]] == ["pod-a"]
    result = kvctl("reset", "pod-a", "--yes", "--nudge", "--timeout", "1", "-o", "json")
    assert result.json["verdict"] == "verified"
    assert kvctl("pods", "pod-z").code == 2
    assert kvctl("pods", "--context", "none").code == 2


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("contexts = 5", "contexts"),
        ("[contexts.lab.pods.pod-a]\nevnts = 'tcp://h:1'", "evnts"),
        ("[contexts.lab.pods.pod-a]\nevents = 'ftp://h:1'", "ftp"),
        ("not toml", "not TOML"),
    ],
)
def test_a_broken_config_is_refused_in_one_line(
    kvctl, tmp_path: Path, content: str, complaint: str
) -> None:
    (tmp_path / "config.toml").write_text(content)
    result = kvctl("pods", "--context", "lab")
    assert result.code == 2
    assert len(result.err.splitlines()) == 1
    assert complaint in result.err
    assert str(tmp_path / "config.toml") in result.err
