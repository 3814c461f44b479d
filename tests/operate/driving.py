"""Simulated pods driven through kvctl's own layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import requests

from kvctl.engine import EngineClient
from kvctl.fleet import Pod, parse_pod
from kvctl.operate.control import Control, ControlOptions
from kvctl.operate.live import LiveIndex
from kvctl.operate.target import Target
from kvctl.operate.verdicts import Report
from kvctl.sim import SimPod

PROMPT = list(range(1, 65))


def spec(pod: SimPod, **more: str) -> str:
    """The pod as --pod takes it."""
    fields = {
        "name": pod.name,
        "api": pod.api,
        "events": "|".join(pod.events),
        "replay": "|".join(pod.replay),
    } | more
    return ",".join(f"{key}={value}" for key, value in fields.items())


def fleet_pod(pod: SimPod, **more: str) -> Pod:
    return parse_pod(spec(pod, **more))


def complete(pod: SimPod, prompt: list[int] | None = None, **body: Any) -> dict:
    """A completion's usage; `rank` picks the DP rank."""
    rank = body.pop("rank", None)
    headers = {} if rank is None else {"X-data-parallel-rank": str(rank)}
    answer = requests.post(
        pod.api + "/v1/completions",
        json={"model": pod.config.model, "prompt": prompt or PROMPT, "max_tokens": 1} | body,
        headers=headers,
        timeout=30,
    )
    answer.raise_for_status()
    return answer.json()["usage"]


def fault(pod: SimPod, name: str, **params: Any) -> None:
    requests.post(f"{pod.api}/sim/{name}", params=params, timeout=30).raise_for_status()


def drive(
    pod: SimPod,
    before: Callable[[], object] = lambda: None,
    known: Pod | None = None,
    target: Target | None = None,
    after_call: Callable[[], object] = lambda: None,
    **options: Any,
) -> Report:
    """Run one control over the pod; ``before`` happens when the index has settled."""
    known = known or fleet_pod(pod)
    client = EngineClient(known.name, known.api or "", timeout=10)
    given = {"timeout": 0.5, "settle_timeout": 5.0} | options

    def tell(step: object) -> None:
        if getattr(step, "name", "") == "index":
            before()
        if getattr(step, "name", "") == "call":
            after_call()

    with LiveIndex(known) as live:
        return Control(client, live, ControlOptions(**given), tell, target).run()


def step(report: Report, name: str) -> Any:
    """The last step of that name."""
    return [each for each in report.steps if each.name == name][-1]
