"""Drives a simulated engine over its real ports, without kvctl's own client."""

from __future__ import annotations

import contextlib
from typing import Any

import msgpack
import requests
import zmq

from kvctl.sim import SimPod

END = b"\xff" * 8


def post(pod: SimPod, path: str, **params: Any) -> requests.Response:
    return requests.post(pod.api + path, params=params, timeout=30)


def get(pod: SimPod, path: str) -> requests.Response:
    return requests.get(pod.api + path, timeout=30)


def complete(pod: SimPod, prompt: list[int] | str, max_tokens: int = 1, **more: Any) -> dict:
    """A completion's usage."""
    body = {"model": pod.config.model, "prompt": prompt, "max_tokens": max_tokens} | more
    timeout = body.pop("timeout", 30)
    headers = body.pop("headers", {})
    answer = requests.post(pod.api + "/v1/completions", json=body, timeout=timeout, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()["usage"]


def give_up(pod: SimPod, prompt: list[int]) -> None:
    """A request whose client does not wait for the answer."""
    with contextlib.suppress(requests.Timeout):
        complete(pod, prompt, timeout=0.3)


def replayed(pod: SimPod, rank: int = 0, start: int = 0) -> list[tuple[int, list[Any]]]:
    """(seq, payload) of every batch the pod's replay holds, by msgpack alone."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.setsockopt(zmq.RCVHWM, 0)
        dealer.connect(pod.replay[rank])
        dealer.send_multipart([b"", start.to_bytes(8, "big")])
        batches = []
        while True:
            assert dealer.poll(10_000)
            *_front, seq, payload = dealer.recv_multipart()
            if seq == END:
                return batches
            batches.append((int.from_bytes(seq, "big"), msgpack.unpackb(payload)))


def types(batches: list[tuple[int, list[Any]]]) -> list[list[str]]:
    """Event types, a list a batch."""
    return [
        [event["type"] if isinstance(event, dict) else event[0] for event in payload[1]]
        for _seq, payload in batches
    ]


def metric(pod: SimPod, name: str, **labels: str) -> float | None:
    """One sample of the pod's metrics."""
    from prometheus_client.parser import text_string_to_metric_families

    for family in text_string_to_metric_families(get(pod, "/metrics").text):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    return None
