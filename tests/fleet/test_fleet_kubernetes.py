"""Pods listed from an API server, and everything it may answer instead."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

import pytest
from kube_server import KubeServer, pod_object, status, write_kubeconfig

from kvctl.errors import KvctlError, UsageError
from kvctl.fleet import PRESETS, FleetSnapshot, PodSource, Preset, SkippedPod
from kvctl.fleet import kubeapi as api
from kvctl.fleet.kubefaults import KubernetesError, UnreachableError
from kvctl.fleet.kubernetes import KubernetesOptions, KubernetesPods
from kvctl.fleet.presets import PLAIN

TLS = Path(__file__).parents[1] / "engine" / "tls"


def ask(
    kubeconfig: Path,
    *,
    namespace: str | None = None,
    everywhere: bool = False,
    selector: str | None = None,
    preset: Preset = PLAIN,
) -> FleetSnapshot:
    options = KubernetesOptions(
        namespace=namespace,
        all_namespaces=everywhere,
        selector=selector,
        kubeconfig=kubeconfig,
        preset=preset,
    )
    source: PodSource = KubernetesPods(options)
    return source.pods()


def names(snapshot: FleetSnapshot) -> list[str]:
    return [pod.name for pod in snapshot.pods]


def test_pods_of_the_contexts_namespace_of_another_and_of_all(
    server: KubeServer, kubeconfig: Path
) -> None:
    server.put(pod_object("b", ip="10.0.0.2"))
    server.put(pod_object("a"))
    server.put(pod_object("a", namespace="test", ip="10.0.0.3"))
    assert names(ask(kubeconfig)) == ["prod/a", "prod/b"]
    assert names(ask(kubeconfig, namespace="test")) == ["test/a"]
    assert names(ask(kubeconfig, everywhere=True)) == ["prod/a", "prod/b", "test/a"]
    assert names(ask(kubeconfig, namespace="none")) == []


def test_a_selector_chooses(server: KubeServer, kubeconfig: Path) -> None:
    server.put(pod_object("a", labels={"app": "vllm", "tier": "test"}))
    server.put(pod_object("b", labels={"app": "vllm"}))
    server.put(pod_object("c", labels={"app": "web"}))
    assert names(ask(kubeconfig, selector="app=vllm")) == ["prod/a", "prod/b"]
    assert names(ask(kubeconfig, selector="app=vllm,tier!=test")) == ["prod/b"]


def test_the_presets_selector_lists_and_the_users_replaces_it(
    server: KubeServer, kubeconfig: Path
) -> None:
    aibrix = {"model.aibrix.ai/name": "tiny"}
    server.put(pod_object("a", labels=aibrix | {"model.aibrix.ai/kv-events-enabled": "true"}))
    server.put(pod_object("b", labels=aibrix))
    server.put(pod_object("c", labels={"llm-d.ai/inferenceServing": "true", "app": "x"}))
    server.put(pod_object("d", labels={"app": "x"}))
    listed = ask(kubeconfig, preset=PRESETS["aibrix"])
    assert names(listed) == ["prod/a"]
    assert listed.skipped == (
        SkippedPod("prod/b", "it lacks the label model.aibrix.ai/kv-events-enabled=true"),
    )
    assert names(ask(kubeconfig, preset=PRESETS["llm-d"])) == ["prod/c"]
    chosen = ask(kubeconfig, preset=PRESETS["llm-d"], selector="app=x")
    assert names(chosen) == ["prod/c"]
    assert [each.name for each in chosen.skipped] == ["prod/d"]


def test_pods_that_cannot_be_used_are_listed_with_the_reason(
    server: KubeServer, kubeconfig: Path
) -> None:
    server.put(pod_object("a"))
    server.put(pod_object("b", phase="Pending", ip=None))
    server.put(pod_object("c", deleting=True))
    listed = ask(kubeconfig)
    assert names(listed) == ["prod/a"]
    assert [(each.name, each.reason) for each in listed.skipped] == [
        ("prod/b", "it is not running (Pending)"),
        ("prod/c", "it is being deleted"),
    ]
    assert listed.complete


def test_a_list_is_read_to_its_last_page(server: KubeServer, kubeconfig: Path) -> None:
    for number in range(7):
        server.put(pod_object(f"pod-{number}"))
    server.page = 3
    assert len(ask(kubeconfig).pods) == 7
    asked = server.asked("list")
    assert [("continue" in each, each["limit"]) for each in asked] == [
        (False, str(api.PAGE)),
        (True, str(api.PAGE)),
        (True, str(api.PAGE)),
    ]


def test_a_list_that_expires_between_two_pages_is_read_anew(
    server: KubeServer, kubeconfig: Path
) -> None:
    for number in range(4):
        server.put(pod_object(f"pod-{number}"))
    server.page = 3

    def expire_once() -> None:
        server.forget()
        server.on_page = None

    server.on_page = expire_once
    assert len(ask(kubeconfig).pods) == 4


def test_a_list_that_always_expires_is_an_error_and_no_snapshot(
    server: KubeServer, kubeconfig: Path
) -> None:
    for number in range(4):
        server.put(pod_object(f"pod-{number}"))
    server.page = 3
    server.on_page = server.forget
    with pytest.raises(KubernetesError, match="has expired"):
        ask(kubeconfig)


def test_a_list_that_breaks_off_is_an_error_and_no_snapshot(
    server: KubeServer, kubeconfig: Path
) -> None:
    for number in range(4):
        server.put(pod_object(f"pod-{number}"))
    server.page = 3
    server.on_page = lambda: server.answer_next(500, b"etcdserver: leader changed")
    with pytest.raises(KubernetesError, match="with 500: etcdserver: leader changed"):
        ask(kubeconfig)


def test_refused_credentials_are_those_of_the_kube_context(
    server: KubeServer, tmp_path: Path
) -> None:
    path = write_kubeconfig(tmp_path / "k", server.url, user={"token": "old"})
    with pytest.raises(KubernetesError) as caught:
        ask(path)
    assert caught.value.message == (
        f"{server.url} does not accept the credentials of kube context lab"
    )
    assert "renew them as for kubectl" in caught.value.remedy
    assert "old" not in str(caught.value)


@pytest.mark.parametrize(
    ("everywhere", "where", "scope"),
    [(False, "namespace prod", "-n prod"), (True, "all namespaces", "-A")],
)
def test_what_is_forbidden_is_named_with_the_command_that_shows_it(
    server: KubeServer, kubeconfig: Path, everywhere: bool, where: str, scope: str
) -> None:
    server.forbidden = {("list", "prod"), ("list", None)}
    with pytest.raises(KubernetesError) as caught:
        ask(kubeconfig, everywhere=everywhere)
    assert f"to list pods in {where} of kube context lab is forbidden" in caught.value.message
    assert 'User "ops" cannot list resource "pods"' in caught.value.message
    assert f"kubectl auth can-i list pods {scope}" in caught.value.remedy


def test_a_selector_that_the_server_cannot_read_is_a_usage_error(
    server: KubeServer, kubeconfig: Path
) -> None:
    with pytest.raises(UsageError, match=r"cannot read the selector 'app in vllm': unable to"):
        ask(kubeconfig, selector="app in vllm")


def test_a_server_that_fails_is_quoted(server: KubeServer, kubeconfig: Path) -> None:
    body = json.dumps(status(503, "apiserver is shutting down")).encode()
    server.answer_next(503, body)
    with pytest.raises(KubernetesError, match="with 503: apiserver is shutting down"):
        ask(kubeconfig)
    server.answer_next(500, b"x" * 100_000)
    with pytest.raises(KubernetesError) as caught:
        ask(kubeconfig)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    "body",
    [
        b"", b"<html>hello</html>", b"[]", b"7", b"{}", b'{"items": 7}', b"\xff\x00",
        b'{"metadata": {}, "items": [7]}', b"[" * 100_000,
        b'{"metadata": {}, "items": [{"metadata": {"name": 7}}]}',
    ],
)  # fmt: skip
def test_an_answer_that_is_no_list_of_pods_is_refused(
    server: KubeServer, kubeconfig: Path, body: bytes
) -> None:
    server.answer_next(200, body)
    with pytest.raises(KubernetesError) as caught:
        ask(kubeconfig)
    assert "sent what is no list of pods" in caught.value.message
    assert "kube context lab a Kubernetes API server?" in caught.value.remedy


def test_a_server_that_is_no_api_server_is_told_of(server: KubeServer, tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "k", f"{server.url}/elsewhere")
    with pytest.raises(KubernetesError, match="has no pods to list: the server could not find"):
        ask(path)


def test_a_server_that_nobody_serves_cannot_be_reached(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    path = write_kubeconfig(tmp_path / "k", f"http://127.0.0.1:{port}")
    with pytest.raises(UnreachableError) as caught:
        ask(path)
    assert caught.value.message == (
        f"http://127.0.0.1:{port}, the API server of kube context lab, cannot be reached: "
        "connection refused"
    )
    assert "kubectl cluster-info" in caught.value.remedy


def test_a_server_with_no_name_cannot_be_reached(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "k", "http://nowhere.invalid:6443")
    with pytest.raises(UnreachableError, match=r"cannot be reached: .*(name|resolution)"):
        ask(path)


def test_a_server_that_hangs_up_or_is_silent_cannot_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "READ_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        path = write_kubeconfig(tmp_path / "k", f"http://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(UnreachableError, match="no answer in time"):
            ask(path)
        silent, _ = listener.accept()
        silent.close()

        def hang_up() -> None:
            listener.accept()[0].close()

        hangs_up = threading.Thread(target=hang_up)
        hangs_up.start()
        with pytest.raises(UnreachableError, match="cannot be reached"):
            ask(path)
        hangs_up.join()


def test_a_certificate_of_another_authority_is_not_believed(tmp_path: Path) -> None:
    with KubeServer(tls=(TLS / "cert.pem", TLS / "key.pem")) as server:
        server.put(pod_object("a"))
        doubted = write_kubeconfig(tmp_path / "doubted", server.url)
        with pytest.raises(UnreachableError) as caught:
            ask(doubted)
        assert "certificate" in caught.value.message.lower()
        assert "kube context lab name the right certificate authority?" in caught.value.remedy
        authority = {"certificate-authority": str(TLS / "cert.pem")}
        trusted = write_kubeconfig(tmp_path / "trusted", server.url, more=authority)
        assert names(ask(trusted)) == ["prod/a"]


def test_every_error_is_one_that_a_person_can_meet() -> None:
    assert issubclass(KubernetesError, KvctlError)
