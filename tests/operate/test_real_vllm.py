"""Reset, sleep, wake and the probe on a real vLLM engine, where one is named.

`KVCTL_VLLM_API=http://127.0.0.1:8000 KVCTL_VLLM_EVENTS=tcp://127.0.0.1:5557 pytest -m vllm`; the
replay is looked for at the next port, or at `KVCTL_VLLM_REPLAY`. The engine needs
`VLLM_SERVER_DEV_MODE=1` and its cache is wiped.
"""

from __future__ import annotations

import os
import random

import pytest
import requests
from driving import step

from kvctl.engine import EngineClient, State, probe_state
from kvctl.fleet import Pod, parse_pod
from kvctl.operate.control import Control, ControlOptions
from kvctl.operate.live import LiveIndex
from kvctl.operate.verdicts import Report, Verdict

API = os.environ.get("KVCTL_VLLM_API", "")
EVENTS = os.environ.get("KVCTL_VLLM_EVENTS", "")

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not (API and EVENTS), reason="KVCTL_VLLM_API and KVCTL_VLLM_EVENTS name no engine"
    ),
]


@pytest.fixture
def pod() -> Pod:
    address, _, port = EVENTS.rpartition(":")
    replay = os.environ.get("KVCTL_VLLM_REPLAY") or f"{address}:{int(port) + 1}"
    return parse_pod(f"name=real,api={API},events={EVENTS},replay={replay}")


@pytest.fixture
def client(pod: Pod) -> EngineClient:
    client = EngineClient(pod.name, pod.api or "", timeout=60)
    client.wake()
    return client


def fill(client: EngineClient) -> list[int]:
    """A prompt nobody sent before, in the cache."""
    prompt = random.SystemRandom().choices(range(100, 900), k=200)
    client.complete(prompt, client.models()[0])
    return prompt


def drive(pod: Pod, client: EngineClient, **options: object) -> Report:
    given = {"timeout": 3.0} | options
    with LiveIndex(pod) as live:
        return Control(client, live, ControlOptions(**given)).run()  # type: ignore[arg-type]


def states(client: EngineClient) -> set[State]:
    return {each.verdict for each in probe_state(client).states}


def test_a_reset_while_idle_is_told_only_with_the_next_step(pod: Pod, client: EngineClient) -> None:
    fill(client)
    report = drive(pod, client, action="reset")
    assert report.verdict is Verdict.STALE
    assert report.entries_before == report.entries_after > 0
    assert step(report, "call").ok is True


def test_a_nudge_verifies_it_and_the_probe_agrees(pod: Pod, client: EngineClient) -> None:
    fill(client)
    report = drive(pod, client, action="reset", nudge=True, probe=True)
    assert report.verdict is Verdict.VERIFIED
    assert report.entries_after == 0
    assert step(report, "probe before").ok is True
    assert step(report, "probe after").ok is True


@pytest.mark.parametrize(("level", "state"), [(1, State.SLEEPING_1), (2, State.SLEEPING_2)])
def test_a_sleep_says_nothing_until_it_wakes_and_steps(
    pod: Pod, client: EngineClient, level: int, state: State
) -> None:
    fill(client)
    slept = drive(pod, client, action="sleep", level=level)
    assert slept.verdict is Verdict.STALE
    assert states(client) == {state}
    woken = drive(pod, client, action="wake", nudge=True)
    assert (woken.verdict, woken.entries_after) == (Verdict.AWAKE, 0)
    assert woken.entries_before == slept.entries_after > 0
    assert states(client) == {State.AWAKE}


def test_a_purge_cures_a_sleep_at_once(pod: Pod, client: EngineClient) -> None:
    fill(client)
    report = drive(pod, client, action="sleep", purge=True)
    client.wake()
    assert (report.verdict, report.entries_after) == (Verdict.PURGED, 0)


def test_level_0_keeps_the_cache(pod: Pod, client: EngineClient) -> None:
    prompt = fill(client)
    slept = drive(pod, client, action="sleep", level=0)
    assert slept.verdict is Verdict.KEPT
    assert states(client) == {State.PAUSED}
    woken = drive(pod, client, action="wake")
    assert woken.verdict is Verdict.AWAKE
    assert woken.entries_after == slept.entries_before > 0
    page = requests.get(f"{API}/metrics", timeout=30).text
    hits = _total(page, "vllm:prefix_cache_hits_total")
    client.complete(prompt, client.models()[0])
    page = requests.get(f"{API}/metrics", timeout=30).text
    assert _total(page, "vllm:prefix_cache_hits_total") > hits


def _total(page: str, name: str) -> float:
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name))
