"""Pods as Kubernetes tells of them, made into engine replicas or left out with a reason."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from kube_server import pod_object

from kvctl.fleet import PRESETS, Pod, PodStream, SkippedPod
from kvctl.fleet.kubepod import KubePod, read_pod
from kvctl.fleet.presets import PLAIN, Preset

AIBRIX = {
    "model.aibrix.ai/name": "tiny",
    "model.aibrix.ai/kv-events-enabled": "true",
    "model.aibrix.ai/port": "8100",
    "model.aibrix.ai/engine": "vllm",
}
LLMD = {"llm-d.ai/inferenceServing": "true"}


def read(preset: Preset = PLAIN, **told: Any) -> Pod | SkippedPod:
    data = json.dumps(pod_object("pod-a", **told)).encode()
    return read_pod(msgspec.json.decode(data, type=KubePod), preset)


def read_forwarded(**told: Any) -> Pod | SkippedPod:
    data = json.dumps(pod_object("pod-a", **told)).encode()
    return read_pod(msgspec.json.decode(data, type=KubePod), PLAIN, forwarded=True)


def events(**config: object) -> list[str]:
    config = {"enable_kv_cache_events": True, **config}
    return ["--kv-events-config", json.dumps(config)]


def test_a_pod_is_named_with_its_namespace_and_has_the_usual_ports() -> None:
    assert read() == Pod(
        "prod/pod-a",
        (PodStream(0, "tcp://10.0.0.1:5557", "tcp://10.0.0.1:5558"),),
        "http://10.0.0.1:8000",
        assumed=frozenset({"events", "replay", "api"}),
    )


def test_aibrix_labels_tell_model_port_and_engine() -> None:
    pod = read(PRESETS["aibrix"], labels=AIBRIX)
    assert isinstance(pod, Pod)
    assert (pod.model, pod.api, pod.engine) == ("tiny", "http://10.0.0.1:8100", "vllm")
    assert pod.streams == (PodStream(0, "tcp://10.0.0.1:5557", "tcp://10.0.0.1:5558"),)


def test_llmd_has_a_port_per_rank_and_a_replay_only_where_one_is_configured() -> None:
    pod = read(PRESETS["llm-d"], labels=LLMD, args=["--data-parallel-size", "2", "--port", "8200"])
    assert isinstance(pod, Pod)
    # A container that neither configures events nor names an engine tells nothing.
    assert [(each.events, each.replay) for each in pod.streams] == [("tcp://10.0.0.1:5557", None)]
    ranks = read(
        PRESETS["llm-d"],
        labels=LLMD,
        args=["vllm", "serve", "m", "--data-parallel-size", "2", "--port", "8200"],
    )
    assert isinstance(ranks, Pod)
    assert [(each.rank, each.events, each.replay) for each in ranks.streams] == [
        (0, "tcp://10.0.0.1:5557", None),
        (1, "tcp://10.0.0.1:5558", None),
    ]
    assert ranks.api == "http://10.0.0.1:8200"
    told = events(endpoint="tcp://*:5600", replay_endpoint="tcp://*:5700")
    replayed = read(PRESETS["llm-d"], labels=LLMD, args=[*told, "-dp", "2"])
    assert isinstance(replayed, Pod)
    assert [(each.events, each.replay) for each in replayed.streams] == [
        ("tcp://10.0.0.1:5600", "tcp://10.0.0.1:5700"),
        ("tcp://10.0.0.1:5601", "tcp://10.0.0.1:5701"),
    ]


def test_ranks_of_this_pod_alone_count() -> None:
    words = ["vllm", "serve", "--data-parallel-size=16", "--data-parallel-size-local=8"]
    pod = read(args=words)
    assert isinstance(pod, Pod)
    assert len(pod.streams) == 8


def test_events_without_a_replay_have_none() -> None:
    pod = read(args=events(endpoint="tcp://*:5557"))
    assert isinstance(pod, Pod)
    assert pod.streams[0].replay is None
    assert "replay" not in pod.assumed


def test_an_ipv6_address_is_bracketed() -> None:
    pod = read(ip="fd00::7", labels=AIBRIX, preset=PRESETS["aibrix"])
    assert isinstance(pod, Pod)
    assert pod.streams[0].events == "tcp://[fd00::7]:5557"
    assert pod.api == "http://[fd00::7]:8100"


def test_sglang_has_ports_of_its_own() -> None:
    pod = read(command=["python", "-m", "sglang.launch_server"])
    assert isinstance(pod, Pod)
    assert (pod.engine, pod.api) == ("sglang", "http://10.0.0.1:30000")


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"phase": "Pending"}, "it is not running (Pending)"),
        ({"phase": "Succeeded"}, "it is not running (Succeeded)"),
        ({"ip": None}, "it has no IP yet"),
        ({"ip": ""}, "it has no IP yet"),
        ({"deleting": True}, "it is being deleted"),
        (
            {"args": ["--kv-events-config", '{"publisher": "zmq"}']},
            "its --kv-events-config does not enable kv cache events",
        ),
        (
            {"args": events(endpoint="tcp://epp.llm-d:5557")},
            "its engine sends its events to tcp://epp.llm-d:5557",
        ),
        (
            {"args": events(endpoint="ipc:///run/kv.sock")},
            "its engine's events stay in the pod, at ipc:///run/kv.sock",
        ),
        ({"ip": "10.0.0.300"}, "host: '10.0.0.300' is no IPv4 address"),
    ],
)
def test_a_pod_that_cannot_be_read_is_left_out_with_the_reason(
    told: dict[str, Any], reason: str
) -> None:
    assert read(**told) == SkippedPod("prod/pod-a", reason)


@pytest.mark.parametrize(
    ("preset", "labels", "reason"),
    [
        ("aibrix", {"model.aibrix.ai/name": "tiny"},
         "it lacks the label model.aibrix.ai/kv-events-enabled=true"),
        ("aibrix", AIBRIX | {"model.aibrix.ai/kv-events-enabled": "false"},
         "its label model.aibrix.ai/kv-events-enabled is 'false', not true"),
        ("aibrix", AIBRIX | {"model.aibrix.ai/port": "http"},
         "api: 'http://10.0.0.1:http' is no URL; expected http://host:port"),
        ("llm-d", {}, "it lacks the label llm-d.ai/inferenceServing=true"),
    ],
)  # fmt: skip
def test_labels_that_a_router_would_not_take_are_named(
    preset: str, labels: dict[str, str], reason: str
) -> None:
    assert read(PRESETS[preset], labels=labels) == SkippedPod("prod/pod-a", reason)


def test_an_engine_that_kvctl_does_not_know_is_left_out() -> None:
    skipped = read(PRESETS["aibrix"], labels=AIBRIX | {"model.aibrix.ai/engine": "trtllm"})
    assert isinstance(skipped, SkippedPod)
    assert "'trtllm' is no engine" in skipped.reason


def test_a_pod_of_which_hardly_anything_is_told_is_left_out() -> None:
    told = msgspec.json.decode(b'{"metadata": {"name": "x", "namespace": "y"}}', type=KubePod)
    assert read_pod(told, PLAIN) == SkippedPod("y/x", "it is not running (Unknown)")


def test_a_pod_that_is_to_be_forwarded_needs_no_ip() -> None:
    assert read_forwarded() == read()
    assert read(ip=None) == SkippedPod("prod/pod-a", "it has no IP yet")
    pod = read_forwarded(ip=None, args=["--port", "8100", *events(endpoint="tcp://*:6000")])
    assert pod == Pod(
        "prod/pod-a",
        (PodStream(0, "tcp://pod-a:6000"),),
        "http://pod-a:8100",
    )


def test_what_else_makes_a_pod_unfit_does_so_when_it_is_forwarded() -> None:
    assert read_forwarded(phase="Pending", ip=None) == SkippedPod(
        "prod/pod-a", "it is not running (Pending)"
    )
    connects = read_forwarded(args=events(endpoint="tcp://router:5557"))
    assert connects == SkippedPod("prod/pod-a", "its engine sends its events to tcp://router:5557")
