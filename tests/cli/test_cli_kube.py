"""Pods in Kubernetes as a user names them, with simulated engines for pods."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kvctl.sim import SimConfig, SimPod

sys.path += [str(Path(__file__).parents[1] / name) for name in ("fleet", "operate")]

from driving import complete
from kube_engines import as_pod
from kube_server import KubeServer, pod_object, write_kubeconfig

OTHER, ANOTHER = list(range(100, 164)), list(range(200, 264))

Start = Callable[[str], SimPod]


@pytest.fixture
def server() -> Iterator[KubeServer]:
    with KubeServer() as server:
        yield server


@pytest.fixture
def cluster(server: KubeServer, tmp_path: Path) -> list[str]:
    """The options that name the cluster."""
    return ["--kubeconfig", str(write_kubeconfig(tmp_path / "kubeconfig", server.url))]


@pytest.fixture
def engine() -> Iterator[Start]:
    """Start a simulated engine of that name, stopped at the end of the test."""
    with ExitStack() as stack:
        yield lambda name: stack.enter_context(SimPod(SimConfig(name=name)))


def test_pods_shows_those_of_the_namespace_with_the_labels(kvctl, server, cluster, engine) -> None:
    server.put(as_pod(engine("pod-a")))
    server.put(as_pod(engine("pod-b"), namespace="test"))
    server.put(as_pod(engine("pod-c"), labels={"app": "other"}))
    server.put(pod_object("pod-d", phase="Pending", ip=None))
    result = kvctl("pods", *cluster, "-n", "prod", "-l", "app=vllm", "-o", "json")
    assert result.code == 0
    (pod,) = result.json["pods"]
    assert (pod["pod"], pod["state"]) == ("prod/pod-a", "awake")
    assert pod["stream"]["connected"]
    assert result.err.splitlines() == ["prod/pod-d is left out: it is not running (Pending)"]
    everywhere = kvctl("pods", *cluster, "-A", "-l", "app=vllm", "-o", "json")
    assert [pod["pod"] for pod in everywhere.json["pods"]] == ["prod/pod-a", "test/pod-b"]


def test_a_preset_knows_the_routers_labels(kvctl, server, cluster, engine) -> None:
    labels = {"model.aibrix.ai/name": "tiny", "model.aibrix.ai/kv-events-enabled": "true"}
    server.put(as_pod(engine("pod-a"), labels=labels))
    server.put(as_pod(engine("pod-b"), labels={"model.aibrix.ai/name": "tiny"}))
    result = kvctl("pods", *cluster, "--preset", "aibrix", "-o", "json")
    assert [(pod["pod"], pod["model"]) for pod in result.json["pods"]] == [("prod/pod-a", "tiny")]
    assert "prod/pod-b is left out: it lacks the label model.aibrix.ai/kv-events" in result.err


def test_pods_can_be_named_without_a_selector(kvctl, server, cluster, engine) -> None:
    server.put(as_pod(engine("pod-a")))
    server.put(as_pod(engine("pod-b")))
    server.put(pod_object("pod-c", deleting=True))
    named = kvctl("pods", "pod-b", *cluster, "-o", "json")
    assert [pod["pod"] for pod in named.json["pods"]] == ["prod/pod-b"]
    assert named.err == ""
    unfit = kvctl("pods", "pod-c", *cluster)
    assert (unfit.code, unfit.err) == (
        2,
        "kvctl: pod prod/pod-c cannot be used: it is being deleted\n",
    )
    unknown = kvctl("pods", "pod-x", *cluster)
    assert unknown.code == 2
    assert "there is no pod 'pod-x' (did you mean prod/pod-" in unknown.err


def test_tail_begins_with_a_pod_that_appears_and_ends_with_one_that_goes(
    start, server, cluster, engine
) -> None:
    first, second = engine("pod-a"), engine("pod-b")
    complete(first)
    server.put(as_pod(first))
    tail = start("tail", *cluster, "-n", "prod", "-l", "app=vllm")

    def objects(pod: str, kind: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in tail.out.splitlines() if line.endswith("}")]
        return [each for each in found if (each["pod"], each["type"]) == (pod, kind)]

    tail.wait_until(lambda: objects("prod/pod-a", "BlockStored"))
    assert not objects("prod/pod-a", "Note")
    complete(second)
    server.put(as_pod(second))
    tail.wait_until(lambda: objects("prod/pod-b", "BlockStored"))
    (joined,) = objects("prod/pod-b", "Note")
    assert joined["text"] == f"joined the fleet: {second.events[0]}"
    server.remove("pod-b")
    tail.wait_until(lambda: len(objects("prod/pod-b", "Note")) == 2)
    assert objects("prod/pod-b", "Note")[-1]["text"] == "left the fleet: it is gone"
    before = len(objects("prod/pod-b", "BlockStored"))
    complete(second, OTHER)
    complete(first, OTHER)
    tail.wait_until(lambda: len(objects("prod/pod-a", "BlockStored")) > 1)
    assert len(objects("prod/pod-b", "BlockStored")) == before
    assert tail.interrupt() == 130


def test_tail_waits_for_the_first_pod_if_told_to_follow(start, server, cluster, engine) -> None:
    tail = start("tail", *cluster, "-l", "app=vllm", "--follow", "--count", "1")
    tail.wait_until(lambda: server.watches)
    pod = engine("pod-a")
    complete(pod)
    server.put(as_pod(pod))
    assert tail.wait() == 0
    assert '"pod":"prod/pod-a"' in tail.out


def test_tail_takes_up_a_pod_again_that_was_replaced(
    start, kvctl, server, cluster, engine, tmp_path: Path
) -> None:
    index = tmp_path / "x.sqlite"
    old, new = engine("pod-a"), engine("pod-a")
    complete(old)
    complete(new, OTHER)
    complete(new, ANOTHER)
    server.put(as_pod(old))
    tail = start("tail", "pod-a", *cluster, "--index", index)
    tail.wait_until(lambda: "BlockStored" in tail.out)
    server.remove("pod-a")
    server.put(as_pod(new))
    tail.wait_until(lambda: tail.out.count("BlockStored") == 3)
    assert [json.loads(line)["type"] for line in tail.out.splitlines()] == [
        "BlockStored", "Note", "Restart", "Note", "BlockStored", "BlockStored",
    ]  # fmt: skip
    assert tail.interrupt() == 130
    shown = kvctl("index", "show", "--index", index, "-o", "json").json
    assert shown["entries"] == 8  # two prompts of the new one, none of the old one


def test_tail_says_when_pods_cannot_be_followed_and_goes_on(start, server, cluster, engine) -> None:
    pod = engine("pod-a")
    server.put(as_pod(pod))
    server.forbidden = {("watch", "prod")}
    tail = start("tail", *cluster, "-l", "app=vllm", "--count", "1")
    tail.wait_until(lambda: "pods are not followed: to watch pods in namespace prod" in tail.err)
    assert "kubectl auth can-i watch pods -n prod" in tail.err
    complete(pod)
    assert tail.wait() == 0


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (["-l", "app=none"], 1, "no pod in namespace prod of kube context lab can be used"),
        (["-l", "app in vllm"], 2, "cannot read the selector 'app in vllm'"),
        (["-n", "prod"], 2, "nothing says which pods of the namespace are engines"),
        (["-n", "prod", "-A", "-l", "a=b"], 2, "--namespace and --all-namespaces exclude"),
        (["--kube-context", "prd", "-l", "a=b"], 2, "has no kube context 'prd' (known: lab)"),
        (["--kubeconfig", "none", "-l", "a=b"], 2, "there is no kubeconfig none"),
        (["--preset", "kthena"], 2, "invalid value for '--preset'"),
    ],
)
@pytest.mark.parametrize("command", ["pods", "tail"])
def test_what_is_wrong_is_named(kvctl, cluster, command, options, code, told) -> None:
    result = kvctl(command, *cluster, *options)
    assert result.code == code
    assert told in result.err
    assert len(result.err.splitlines()) == 1


@pytest.mark.parametrize("command", ["pods", "tail"])
def test_a_cluster_that_refuses_or_is_away_is_an_error(kvctl, server, cluster, command) -> None:
    server.forbidden = {("list", "prod")}
    refused = kvctl(command, *cluster, "-l", "app=vllm")
    assert refused.code == 1
    assert "kvctl: to list pods in namespace prod of kube context lab is forbidden" in refused.err
    server.close()
    away = kvctl(command, *cluster, "-l", "app=vllm")
    assert away.code == 1
    assert "cannot be reached: connection refused" in away.err


def test_the_options_are_a_group_of_their_own_in_the_help(kvctl) -> None:
    for command in ("tail", "pods", "reconcile", "reset", "sleep", "wake", "doctor"):
        help_text = kvctl(command, "--help", COLUMNS="100").out
        panel = help_text[help_text.index("─ Kubernetes ─") :]
        panel = panel[: panel.index("╰")]
        for option in ("--namespace", "--selector", "--preset", "--kube-context", "--kubeconfig"):
            assert option in panel


@pytest.fixture
def index(kvctl, server, cluster, engine, tmp_path: Path) -> tuple[Path, SimPod]:
    """An index of pod-a, pod-b and pod-c, and pod-a."""
    path = tmp_path / "x.sqlite"
    engines = [engine(name) for name in ("pod-a", "pod-b", "pod-c")]
    for each in engines:
        complete(each)
        server.put(as_pod(each))
    told = kvctl("tail", *cluster, "-l", "app=vllm", "--index", path, "--count", "3")
    assert told.code == 0
    return path, engines[0]


def test_reconcile_purges_the_pods_that_are_gone_and_no_others(
    kvctl, server, cluster, index
) -> None:
    path, _ = index
    where = ["reconcile", "--index", path, *cluster, "-l", "app=vllm", "--yes", "-o", "json"]
    server.remove("pod-b")
    server.put(pod_object("pod-c", phase="Unknown", ip=None))
    server.answer_next(500, b"no", verb="list")
    failed = kvctl(*where)
    assert failed.code == 1
    done = kvctl(*where)
    assert done.code == 0
    assert {each["pod"]: each["verdict"] for each in done.json["pods"]} == {
        "prod/pod-a": "keep",
        "prod/pod-b": "purge",
    }
    assert done.json["summary"]["purged_entries"] == 4
    left = kvctl("index", "show", "--index", path, "-o", "json").json
    assert left["entries"] == 8


def test_a_standing_reconcile_lists_the_pods_anew_every_round(
    start, server, cluster, index
) -> None:
    path, _ = index
    run = start(
        "reconcile", "--index", path, *cluster, "-l", "app=vllm", "--watch", "--dry-run",
        "--interval", "0.2", "-o", "jsonl",
    )  # fmt: skip

    def gone() -> set[str]:
        last = json.loads(run.out.splitlines()[-1]) if run.out.endswith("\n") else {"pods": []}
        return {each["pod"] for each in last["pods"] if each["verdict"] == "purge"}

    run.wait_until(lambda: run.out.count("\n") > 1)
    assert gone() == set()
    server.remove("pod-b")
    run.wait_until(lambda: gone() == {"prod/pod-b"})
    run.interrupt()


def test_a_pod_in_kubernetes_is_reset_by_its_name(kvctl, server, cluster, engine) -> None:
    server.put(as_pod(engine("pod-a")))
    server.put(as_pod(engine("pod-b")))
    result = kvctl("reset", "pod-a", *cluster, "--yes", "-o", "json")
    assert result.code == 0
    assert result.json["pod"] == "prod/pod-a"


def test_top_keeps_n_for_the_number_of_looks(kvctl, cluster, server, engine) -> None:
    server.put(as_pod(engine("pod-a")))
    told = kvctl("top", "--help", COLUMNS="200")
    assert "--count" in told.out
    assert "--namespace" in told.out
    shown = kvctl("top", *cluster, "-l", "app=vllm", "-n", "1", "--interval", "0.3", "-o", "json")
    assert shown.code == 0
    assert "prod/pod-a" in {row["pod"] for row in shown.json["pods"]}


def test_pods_that_are_left_out_are_in_the_json(kvctl, server, cluster, engine) -> None:
    server.put(as_pod(engine("pod-a")))
    asked = ("pods", *cluster, "-l", "app=vllm", "-o", "json")
    assert "skipped" not in kvctl(*asked).json
    server.put(pod_object("pod-d", phase="Pending", ip=None))
    server.put(pod_object("pod-e", deleting=True))
    told = kvctl(*asked)
    assert told.json["skipped"] == [
        {"pod": "prod/pod-d", "reason": "it is not running (Pending)"},
        {"pod": "prod/pod-e", "reason": "it is being deleted"},
    ]
    assert "skipped" not in kvctl("pods", "pod-a", *cluster, "-o", "json").json


@pytest.fixture
def context(kvctl, cluster) -> Callable[..., None]:
    """Make a context in Kubernetes: `context("prod", "--preset", "aibrix")`."""

    def make(name: str, *options: str) -> None:
        done = kvctl("config", "set-context", name, *cluster, *options)
        assert done.code == 0, done.err

    return make


def test_a_context_in_kubernetes_suffices(kvctl, start, server, context, engine) -> None:
    first = engine("pod-a")
    complete(first)
    server.put(as_pod(first, namespace="serving"))
    server.put(as_pod(engine("pod-b"), namespace="serving", labels={"app": "other"}))
    context("cloud", "-n", "serving", "-l", "app=vllm")
    shown = kvctl("pods", "--context", "cloud", "-o", "json")
    assert [pod["pod"] for pod in shown.json["pods"]] == ["serving/pod-a"]
    by_variable = kvctl("pods", "-o", "json", KVCTL_CONTEXT="cloud")
    assert by_variable.json["pods"][0]["pod"] == "serving/pod-a"
    assert kvctl("reset", "pod-a", "--yes", "-o", "json").json["pod"] == "serving/pod-a"  # current
    assert kvctl("doctor", "-o", "json").json["checks"][0]["pod"] == "serving/pod-a"
    tail = start("tail", "--context", "cloud")
    tail.wait_until(lambda: "BlockStored" in tail.out)
    second = engine("pod-c")
    complete(second)
    server.put(as_pod(second, namespace="serving"))
    tail.wait_until(lambda: '"pod":"serving/pod-c"' in tail.out)  # it is followed
    assert tail.interrupt() == 130


def test_flags_go_over_what_the_context_says(kvctl, server, context, engine) -> None:
    server.put(as_pod(engine("pod-a"), namespace="serving"))
    server.put(as_pod(engine("pod-b"), namespace="test"))
    server.put(as_pod(engine("pod-c"), namespace="test", labels={"app": "other"}))
    context("cloud", "--namespace", "serving", "-l", "app=vllm")

    def pods(*options: str) -> list[str]:
        shown = kvctl("pods", "--context", "cloud", *options, "-o", "json")
        return [pod["pod"] for pod in shown.json["pods"]]

    assert pods("-n", "test") == ["test/pod-b"]
    assert pods("-A") == ["serving/pod-a", "test/pod-b"]
    assert pods("-n", "test", "-l", "app=other") == ["test/pod-c"]
    context("wide", "-A", "-l", "app=vllm")
    shown = kvctl("pods", "--context", "wide", "-n", "test", "-o", "json")
    assert [pod["pod"] for pod in shown.json["pods"]] == ["test/pod-b"]


def test_a_pod_told_of_on_the_command_line_needs_no_cluster(kvctl, server, context, engine) -> None:
    context("cloud", "-l", "app=vllm")
    server.close()
    pod = engine("pod-a")
    spec = f"name=pod-a,api={pod.api},events={pod.events[0]},replay={pod.replay[0]}"
    shown = kvctl("pods", "--pod", spec, "-o", "json")
    assert [row["pod"] for row in shown.json["pods"]] == ["pod-a"]
    by_address = kvctl("pods", pod.events[0], "--timeout", "1", "-o", "json")
    assert "cannot be reached" not in by_address.err
    away = kvctl("pods")
    assert away.code == 1
    assert "cannot be reached" in away.err


def test_reconcile_knows_what_is_gone_from_a_context_in_kubernetes(
    kvctl, server, context, index
) -> None:
    path, _ = index
    context("cloud", "-l", "app=vllm", "--index", str(path))
    server.remove("pod-b")
    done = kvctl("reconcile", "--dry-run", "-o", "json")  # its index, too, is the context's
    assert done.code == 3
    verdicts = {each["pod"]: each["verdict"] for each in done.json["pods"]}
    assert verdicts == {"prod/pod-a": "keep", "prod/pod-b": "purge", "prod/pod-c": "keep"}
    assert kvctl("index", "show", "-o", "json").json["entries"] == 12


def test_a_router_s_index_gets_its_names_from_a_context_in_kubernetes(
    kvctl, server, context, engine, url: str
) -> None:
    pod = engine("pod-a")
    complete(pod)
    server.put(as_pod(pod))
    context("cloud", "-l", "app=vllm")
    fed = kvctl("tail", "--count", "1", "--index", f"{url}?block_size=16")
    assert fed.code == 0
    shown = kvctl("index", "show", "--index", url, "-o", "json")
    assert set(shown.json["pods"]) == {"prod/pod-a"}
    server.close()
    # kvctl's own index knows the names: no cluster is asked for them.
    assert kvctl("index", "show", "--index", "capture:demo:fleet").code == 0


def test_config_writes_and_shows_a_context_in_kubernetes(kvctl, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("# mine\n")
    done = kvctl("config", "set-context", "prod", "--namespace", "serving", "--preset", "aibrix")
    assert done.err == f"{path}: context prod: --namespace serving --preset aibrix\n"
    done = kvctl("config", "set-context", "prod", "--kube-context", "lab", "-A", "--model", "m")
    assert done.code == 0
    assert kvctl("config", "view", "-o", "json").json["contexts"]["prod"]["kubernetes"] == {
        "all-namespaces": True, "preset": "aibrix", "kube-context": "lab",
    }  # fmt: skip
    assert path.read_text().startswith("# mine\n")
    view = kvctl("config", "view").out
    assert "--all-namespaces --preset aibrix --kube-context lab" in view
    away = kvctl("config", "set-context", "prod", "--kube-context", "", "-n", "x")
    assert away.code == 0
    assert kvctl("config", "view", "-o", "json").json["contexts"]["prod"]["kubernetes"] == {
        "namespace": "x", "preset": "aibrix",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            "set-context prod -n x",
            "[contexts.prod.kubernetes]: nothing says which pods are engines",
        ),
        ("set-context prod --preset aibrx", "did you mean aibrix?"),
        ("set-pod name=pod-a,host=h --context cloud", "it lists pods and names kubernetes"),
        ("set-context lab --preset aibrix", "it lists pods and names kubernetes"),
    ],
)
def test_a_context_that_cannot_be_is_not_written(kvctl, tmp_path: Path, words, told) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        '[contexts.cloud.kubernetes]\npreset = "llm-d"\n[contexts.lab.pods.pod-a]\nhost = "h"\n'
    )
    before = path.read_text()
    done = kvctl("config", *words.split())
    assert done.code == 2
    assert told in done.err
    assert len(done.err.splitlines()) == 1
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('namespac = "x"', "[contexts.c.kubernetes]: unknown key 'namespac' (did you mean name"),
        ('preset = "kthena"', "preset: 'kthena' is no preset"),
        ("selector = 7", "selector: expected a string"),
        ('selector = "a"\nall-namespaces = "yes"', "all-namespaces: expected true or false"),
        ('selector = "a"\nnamespace = "n"\nall-namespaces = true', "exclude each other"),
        ('namespace = "x"', "nothing says which pods are engines"),
        ('selector = "a"\nkubeconfig = "~nobody-here/x"', "there is no such user"),
    ],
)
def test_a_wrong_context_is_named(kvctl, tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "config.toml").write_text(f"[contexts.c.kubernetes]\n{text}\n")
    done = kvctl("pods", "--context", "c")
    assert done.code == 2
    assert told in done.err
    assert len(done.err.splitlines()) == 1


def test_a_context_may_reach_its_pods_through_the_api_server(kvctl, cluster) -> None:
    done = kvctl("config", "set-context", "away", *cluster, "-l", "app=vllm", "--port-forward")
    assert done.code == 0
    assert "--port-forward" in done.err
    told = kvctl("config", "view", "-o", "json").json["contexts"]["away"]["kubernetes"]
    assert told["port-forward"] is True
