"""Pods reached through the API server. Their own addresses lead nowhere, or there are none."""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
import requests

from kvctl.capture import open_capture
from kvctl.events import WireBatch
from kvctl.index.redisdb.podfields import PodField
from kvctl.sim import SimConfig, SimPod
from kvctl.stream import ReplayablePublisher

sys.path += [str(Path(__file__).parents[1] / name) for name in ("fleet", "operate", "events")]

from driving import complete, spec
from kube_engines import as_pod
from kube_portforward import PortForwarding
from kube_server import KubeServer, pod_object, write_kubeconfig

NOWHERE = "192.0.2.1"  # RFC 5737: of no network
OTHER = list(range(100, 164))

Start = Callable[..., SimPod]


@pytest.fixture
def server() -> Iterator[KubeServer]:
    with KubeServer() as server:
        yield server


@pytest.fixture
def forwarding(server: KubeServer) -> PortForwarding:
    return PortForwarding(server)


@pytest.fixture
def cluster(server: KubeServer, forwarding: PortForwarding, tmp_path: Path) -> list[str]:
    """The options that name the cluster, and ask for port forwarding."""
    path = write_kubeconfig(tmp_path / "kubeconfig", server.url)
    return ["--kubeconfig", str(path), "--port-forward"]


@pytest.fixture
def engine() -> Iterator[Start]:
    """Start a simulated engine of that name, stopped at the end of the test."""
    with ExitStack() as stack:

        def start(name: str, **more: Any) -> SimPod:
            return stack.enter_context(SimPod(SimConfig(name=name, **more)))

        yield start


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody has."""
    while True:
        with ExitStack() as stack:
            first = port_of(f"tcp://x:{_bound(stack, 0)}")
            try:
                for port in range(first + 1, first + count):
                    _bound(stack, port)
            except OSError:
                continue
            return first


def _bound(stack: ExitStack, port: int) -> int:
    taken = stack.enter_context(socket.socket())
    taken.bind(("127.0.0.1", port))
    number: int = taken.getsockname()[1]
    return number


def objects(out: str, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in out.splitlines() if line.endswith("}")]
    return [each for each in found if each["type"] == kind]


def children_of(pid: int) -> tuple[set[str], int]:
    """The addresses on which a process listens, and how many files it has open."""
    files = []
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since it was listed
            files.append(str(each.readlink()))
    own = {each.removeprefix("socket:[").removesuffix("]") for each in files}
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {line[1] for line in lines if line[3] == "0A" and line[9] in own}, len(files)


def test_pods_are_seen_through_the_api_server(kvctl, server, forwarding, cluster, engine) -> None:
    first, second = engine("pod-a"), engine("pod-b")
    complete(first)
    server.put(as_pod(first, ip=NOWHERE))
    server.put(as_pod(second, ip=None))
    server.put(pod_object("pod-c", phase="Pending", ip=None))
    result = kvctl("pods", *cluster, "-n", "prod", "-l", "app=vllm", "-o", "json")
    assert result.code == 0
    assert result.err.splitlines() == ["prod/pod-c is left out: it is not running (Pending)"]
    shown = {row["pod"]: row for row in result.json["pods"]}
    assert {name: (row["state"], row["entries"]) for name, row in shown.items()} == {
        "prod/pod-a": ("awake", 4),
        "prod/pod-b": ("awake", 0),
    }
    assert all(row["stream"]["replay"] == "ok" for row in shown.values())
    # The API, the events and the replay of each, and no other port.
    assert {port for _, port in forwarding.asked} == {
        port_of(url) for each in (first, second) for url in (each.api, *each.events, *each.replay)
    }
    assert forwarding.open == 0


def test_every_dp_rank_has_ports_of_its_own(kvctl, server, cluster, engine) -> None:
    first = free_ports(4)
    pod = engine("pod-a", ranks=2, events_port=first, replay_port=first + 2)
    complete(pod, rank=0)
    complete(pod, OTHER, rank=1)
    server.put(as_pod(pod, ip=NOWHERE))
    result = kvctl("pods", "pod-a", *cluster, "-o", "json")
    assert [(row["rank"], row["entries"], row["stream"]["replay"]) for row in result.json["pods"]] \
        == [(0, 4, "ok"), (1, 4, "ok")]  # fmt: skip


def test_without_port_forwarding_these_pods_are_out_of_reach(
    kvctl, server, cluster, engine
) -> None:
    server.put(as_pod(engine("pod-a"), ip=None))
    direct = kvctl(
        "pods", *(each for each in cluster if each != "--port-forward"), "-l", "app=vllm"
    )
    assert direct.code == 1
    assert "prod/pod-a is left out: it has no IP yet" in direct.err


def test_a_reset_is_proved_through_it(kvctl, server, cluster, engine) -> None:
    pod = engine("pod-a")
    complete(pod)
    server.put(as_pod(pod, ip=NOWHERE))
    plan = kvctl("reset", "pod-a", *cluster, "--dry-run")
    assert plan.out == (
        f"prod/pod-a: would reset at http://{NOWHERE}:{port_of(pod.api)}, and watch 1 stream\n"
    )
    soon = ["--timeout", "1"]
    done = kvctl("reset", "pod-a", *cluster, *soon, "--nudge", "--probe", "--yes", "-o", "json")
    assert (done.code, done.json["verdict"]) == (0, "verified")
    assert done.json["entries_before"] > 0
    slept = kvctl("sleep", "pod-a", *cluster, *soon, "--yes", "--purge", "-o", "json")
    assert (slept.code, slept.json["verdict"]) == (0, "purged")
    assert kvctl("pods", "pod-a", *cluster, "-o", "json").json["pods"][0]["state"] == "sleeping-1"
    woken = kvctl("wake", "pod-a", *cluster, *soon, "--nudge", "-o", "json")
    assert (woken.code, woken.json["verdict"]) == (0, "awake")


def test_doctor_and_top_see_through_it(kvctl, server, cluster, engine) -> None:
    pod = engine("pod-a")
    complete(pod)
    server.put(as_pod(pod, ip=NOWHERE))
    seen = kvctl("doctor", "pod-a", *cluster, "-o", "json").json
    status = {each["check"]: each["status"] for each in seen["checks"]}
    for check in ("api", "control", "state", "events", "replay", "hashes"):
        assert status[check] == "pass"
    looked = kvctl("top", "pod-a", *cluster, "-n", "1", "--interval", "0.3", "-o", "json")
    (row,) = looked.json["pods"]
    assert (row["pod"], row["state"], row["entries"]) == ("prod/pod-a", "awake", 4)


def test_what_happens_during_top_is_told_after_it(
    terminal, server, forwarding, cluster, engine
) -> None:
    pod = engine("pod-a")
    server.put(as_pod(pod, ip=NOWHERE))
    shown = terminal("top", "pod-a", *cluster, "--interval", "0.3", columns=160)
    shown.wait_for("awake")
    forwarding.forbidden.add("prod")
    shown.wait_for("unknown")
    assert "is forbidden" not in shown.text
    shown.send("\x03")
    assert shown.end() == 130
    assert shown.text.count("cannot be reached: to forward ports in namespace prod") == 1


def test_tail_follows_pods_through_it_as_they_come_and_go(
    start, server, forwarding, cluster, engine
) -> None:
    first, second = engine("pod-a"), engine("pod-b")
    complete(first)
    server.put(as_pod(first, ip=NOWHERE))
    tail = start("tail", *cluster, "-l", "app=vllm")
    tail.wait_until(lambda: objects(tail.out, "BlockStored"))
    before, _ = children_of(tail.process.pid)
    assert len(before) == 3
    assert all(each.startswith("0100007F:") for each in before)  # 127.0.0.1 and nothing else
    complete(second)
    server.put(as_pod(second, ip="192.0.2.2"))
    tail.wait_until(lambda: len(objects(tail.out, "BlockStored")) == 2)
    (joined,) = objects(tail.out, "Note")
    assert joined["text"] == f"joined the fleet: tcp://192.0.2.2:{port_of(second.events[0])}"
    assert len(children_of(tail.process.pid)[0]) == 6
    server.remove("pod-b")
    tail.wait_until(lambda: children_of(tail.process.pid)[0] == before)
    tail.wait_until(lambda: forwarding.open == 1)
    assert [each["text"] for each in objects(tail.out, "Note")][1:] == [
        "left the fleet: it is gone"
    ]
    complete(first, OTHER)
    tail.wait_until(lambda: len(objects(tail.out, "BlockStored")) == 3)
    assert tail.interrupt() == 130
    assert "kvctl: warning" not in tail.err


def test_a_pod_that_restarts_is_found_again(start, server, forwarding, cluster, engine) -> None:
    old = engine("pod-a")
    complete(old)
    server.put(as_pod(old, ip=NOWHERE))
    tail = start("tail", "pod-a", *cluster)
    tail.wait_until(lambda: objects(tail.out, "BlockStored"))
    pod = [("prod/pod-a", port_of(url)) for url in (old.api, *old.events, *old.replay)]
    old.close()
    tail.wait_until(lambda: "nothing listens on its port" in tail.err)
    (events,) = old.events
    assert (
        objects(tail.out, "Note")[0]["text"]
        == f"tcp://{NOWHERE}:{port_of(events)}: connection lost"
    )
    new = engine("pod-a")
    complete(new, OTHER)
    ports = (port_of(url) for url in (new.api, *new.events, *new.replay))
    forwarding.ports = dict(zip(pod, ports, strict=True))
    tail.wait_until(lambda: objects(tail.out, "Restart"))
    tail.wait_until(lambda: len(objects(tail.out, "BlockStored")) == 2)
    assert tail.interrupt() == 130
    assert tail.err.count("kvctl: warning") == 1
    assert (
        f"kvctl: warning: pod prod/pod-a: nothing listens on its port {port_of(events)} (is the "
        "engine up, and does its --kv-events-config publish there?)"
    ) in tail.err


def test_a_kubelet_that_restarts_costs_no_event(start, server, forwarding, cluster, engine) -> None:
    pod = engine("pod-a")
    complete(pod)
    server.put(as_pod(pod, ip=NOWHERE))
    tail = start("tail", "pod-a", *cluster)
    tail.wait_until(lambda: objects(tail.out, "BlockStored"))
    forwarding.cut()
    complete(pod, OTHER)
    tail.wait_until(lambda: len(objects(tail.out, "BlockStored")) == 2)
    assert not objects(tail.out, "Gap") or objects(tail.out, "Gap")[0]["recovered"]
    assert tail.interrupt() == 130
    assert "kvctl: warning" not in tail.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_it_at_once_and_all_connections(
    start, server, forwarding, cluster, engine, number
) -> None:
    for name in ("pod-a", "pod-b", "pod-c"):
        server.put(as_pod(engine(name), ip=NOWHERE))
    tail = start("tail", *cluster, "-l", "app=vllm")
    tail.wait_until(lambda: forwarding.open == 3)
    began = time.monotonic()
    assert tail.interrupt(number) == 130
    assert time.monotonic() - began < 3
    deadline = time.monotonic() + 5
    while forwarding.open:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_large_replay_arrives_byte_for_byte(
    kvctl, server, forwarding, cluster, tmp_path: Path
) -> None:
    from event_bytes import array, array_header, text

    tokens = array_header(100_000, 4) + b"\x01" * 100_000
    sent = {}
    with closing(ReplayablePublisher("tcp://127.0.0.1:*", "tcp://127.0.0.1:*")) as engine:
        for seq in range(110):
            event = array(
                text(b"BlockStored"), array(seq.to_bytes(1, "big")), b"\xc0", tokens, b"\x10",
                b"\xc0",
            )  # fmt: skip
            sent[seq] = array(b"\xcb" + bytes(8), array(event))
            engine.publish(b"kv@pod-a@tiny", seq, sent[seq])
        config = {
            "enable_kv_cache_events": True,
            "endpoint": f"tcp://*:{port_of(engine.events_endpoint)}",
            "replay_endpoint": f"tcp://*:{port_of(engine.replay_endpoint or '')}",
        }
        args = ["--kv-events-config", json.dumps(config)]
        server.put(pod_object("pod-a", ip=NOWHERE, args=args))
        path = tmp_path / "x.kvcap"
        told = kvctl("tail", "pod-a", *cluster, "--capture", path, "--count", "110")
    assert told.code == 0
    with open_capture(path) as capture:
        found = {each.seq: each.payload for each in capture if isinstance(each, WireBatch)}
    assert sum(map(len, found.values())) > 10_000_000
    assert found == sent


def test_forbidden_is_one_line_that_names_the_rule(
    kvctl, server, forwarding, cluster, engine
) -> None:
    server.put(as_pod(engine("pod-a"), ip=NOWHERE))
    server.put(as_pod(engine("pod-b"), ip=NOWHERE))
    forwarding.forbidden.add("prod")
    result = kvctl("pods", *cluster, "-l", "app=vllm", "--timeout", "2", "-o", "json")
    assert result.code == 1
    assert [row["state"] for row in result.json["pods"]] == ["unknown", "unknown"]
    (line,) = result.err.splitlines()
    assert re.sub(r"pod-[ab]", "pod-X", line) == (
        "kvctl: warning: pod prod/pod-X cannot be reached: to forward ports in namespace prod of "
        'kube context lab is forbidden: pods "pod-X" is forbidden: User "ops" cannot get resource '
        '"pods/portforward" in API group "" in the namespace "prod" (a role must allow get and '
        "create of pods/portforward: kubectl auth can-i get pods --subresource=portforward -n prod)"
    )


def test_tail_ends_where_no_pod_can_be_reached(kvctl, server, forwarding, cluster, engine) -> None:
    pod = engine("pod-a")
    server.put(as_pod(pod, ip=NOWHERE))
    forwarding.forbidden.add("prod")
    result = kvctl("tail", "pod-a", *cluster, "--connect-timeout", "1")
    assert result.code == 1
    warning, error = result.err.splitlines()
    assert "is forbidden" in warning
    assert f"kvctl: tcp://{NOWHERE}:{port_of(pod.events[0])} is not reached after 1 s" in error


def test_text_of_the_api_server_does_not_act_on_the_terminal(
    kvctl, server, forwarding, cluster, engine
) -> None:
    server.put(as_pod(engine("pod-a"), ip=NOWHERE))
    forwarding.say = "oh\x1b]0;title\x07 no"
    result = kvctl("pods", "pod-a", *cluster, "--timeout", "1")
    assert "\x1b" not in result.err
    assert "is not forwarded: oh\\x1b]0;title\\x07 no" in result.err


@pytest.mark.parametrize("command", ["pods", "tail"])
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ["-l", "app=vllm", "--pod", "name=pod-x,events=tcp://*:5557,bind=true"],
            "kvctl: pod pod-x connects to kvctl (bind=true), and --port-forward leads from here to "
            "the pods (leave one of the two away)",
        ),
        (["--port-forward"], "nothing says which pods of the namespace are engines"),
    ],
)
def test_what_does_not_go_together_is_refused(
    kvctl, server, cluster, command, options, told
) -> None:
    result = kvctl(command, *cluster, *options)
    assert result.code == 2
    (line,) = result.err.splitlines()
    assert told in line


def test_an_address_is_no_pod_of_the_cluster(kvctl, server, cluster, engine) -> None:
    server.put(as_pod(engine("pod-a"), ip=NOWHERE))
    result = kvctl("pods", NOWHERE, *cluster)
    assert (result.code, result.out) == (2, "")
    assert f"there is no pod '{NOWHERE}'" in result.err


def test_the_package_that_is_lacking_is_named(
    kvctl, server, cluster, engine, tmp_path: Path
) -> None:
    server.put(as_pod(engine("pod-a"), ip=NOWHERE))
    lacking = tmp_path / "lacking" / "websockets"
    lacking.mkdir(parents=True)
    (lacking / "__init__.py").write_text('raise ModuleNotFoundError("none", name="websockets")')
    result = kvctl("pods", "pod-a", *cluster, PYTHONPATH=str(lacking.parent))
    assert (result.code, result.err) == (
        1,
        "kvctl: --port-forward needs the package websockets (pip install 'kvctl[k8s]')\n",
    )


def test_a_standing_reconcile_keeps_its_ports_from_round_to_round(
    kvctl, start, server, forwarding, cluster, engine, tmp_path: Path
) -> None:
    first, second = engine("pod-a"), engine("pod-b")
    for each in (first, second):
        complete(each)
        server.put(as_pod(each, ip=NOWHERE))
    index = tmp_path / "x.sqlite"
    told = kvctl("tail", *cluster, "-l", "app=vllm", "--index", index, "--count", "2")
    assert told.code == 0
    requests.post(first.api + "/sleep", timeout=10).raise_for_status()
    run = start(
        "reconcile", "--index", index, *cluster, "-l", "app=vllm", "--watch", "--yes",
        "--interval", "0.2", "-o", "jsonl",
    )  # fmt: skip

    def rounds() -> list[dict[str, Any]]:
        return [json.loads(line) for line in run.out.splitlines() if line.endswith("}")]

    run.wait_until(lambda: len(rounds()) > 2)
    assert rounds()[0]["summary"]["purged_entries"] == 4
    verdicts = {each["pod"]: each["verdict"] for each in rounds()[0]["pods"]}
    assert verdicts == {"prod/pod-a": "purge", "prod/pod-b": "keep"}
    before, _ = children_of(run.process.pid)
    assert len(before) == 6
    seen = len(rounds())
    run.wait_until(lambda: len(rounds()) > seen + 5)
    assert children_of(run.process.pid)[0] == before
    server.remove("pod-b")
    run.wait_until(lambda: len(children_of(run.process.pid)[0]) == 3)
    assert run.interrupt() == 130
    assert "kvctl: warning" not in run.err


def test_a_router_still_knows_the_pod_by_its_own_address(
    kvctl, server, cluster, engine, url: str, db: redis.Redis
) -> None:
    """llm-d's index files entries under the pods' IPs; 127.0.0.1 there is some other pod."""
    pod = engine("pod-a")
    complete(pod)
    known = spec(pod, api="none", name=NOWHERE)
    assert kvctl("tail", "--pod", known, "--index", url, "--count", "1").code == 0
    keys, other = db.keys("[0-9]*"), PodField("127.0.0.1", "gpu").encode()
    for key in keys:
        db.hset(key, other, "")
    server.put(as_pod(pod, ip=NOWHERE))
    requests.post(pod.api + "/sleep", timeout=10).raise_for_status()
    where = ["--index", url, *cluster, "-l", "app=vllm", "-o", "json"]
    planned = kvctl("reconcile", *where, "--dry-run").json
    verdicts = {each["pod"]: (each["verdict"], each["entries"]) for each in planned["pods"]}
    assert verdicts["prod/pod-a"] == ("purge", 4)
    kvctl("reconcile", *where, "--yes")
    assert [db.hkeys(key) for key in keys] == [[other]] * 4


def test_many_pods_at_once(kvctl, server, forwarding, cluster, engine) -> None:
    for number in range(30):
        server.put(as_pod(engine(f"pod-{number}"), ip=NOWHERE))
    result = kvctl("pods", *cluster, "-l", "app=vllm", "--timeout", "20", "-o", "json")
    assert result.code == 0
    assert result.err == ""
    rows = result.json["pods"]
    assert len(rows) == 30
    assert all(row["state"] == "awake" and row["stream"]["replay"] == "ok" for row in rows)
    assert forwarding.open == 0
