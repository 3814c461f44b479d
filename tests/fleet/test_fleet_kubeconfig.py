"""Kubeconfigs as people have them, right and wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kube_server import TOKEN, KubeServer, pod_object, write_kubeconfig

from kvctl.errors import UsageError
from kvctl.fleet import kubeconfig as module
from kvctl.fleet.kubeconfig import load_cluster
from kvctl.fleet.kubernetes import KubernetesOptions, KubernetesPods

TLS = Path(__file__).parents[1] / "engine" / "tls"


def test_the_current_context_is_used_with_its_namespace(
    kubeconfig: Path, server: KubeServer
) -> None:
    cluster = load_cluster(kubeconfig)
    assert (cluster.who, cluster.server, cluster.namespace) == (
        "kube context lab",
        server.url,
        "prod",
    )


def test_a_context_without_a_namespace_means_the_default_one(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "k", "http://127.0.0.1:1", namespace=None)
    assert load_cluster(path).namespace == "default"


def test_another_context_can_be_chosen(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "k", "http://127.0.0.1:1")
    content = json.loads(path.read_text())
    content["contexts"].append({"name": "other", "context": {"cluster": "lab", "user": "lab"}})
    path.write_text(json.dumps(content))
    assert load_cluster(path, "other").who == "kube context other"
    with pytest.raises(UsageError, match=r"k has no kube context 'othr' \(did you mean other\?\)"):
        load_cluster(path, "othr")


def test_the_variable_may_name_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write_kubeconfig(tmp_path / "one", "http://127.0.0.1:1", name="one")
    second = write_kubeconfig(tmp_path / "two", "http://127.0.0.1:2", name="two")
    monkeypatch.setenv("KUBECONFIG", f"{first}:{second}:{tmp_path}/none")
    assert load_cluster(None, "one").server == "http://127.0.0.1:1"
    assert load_cluster(None, "two").server == "http://127.0.0.1:2"


def test_a_missing_kubeconfig_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"there is no kubeconfig .*/none \(name one with"):
        load_cluster(tmp_path / "none")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UsageError, match=r"there is no kubeconfig ~/\.kube/config"):
        load_cluster()


@pytest.mark.parametrize(
    "content",
    [
        "", "7", "[]", "- a", "text", "{unclosed", "a: b: c", "current-context: x",
        '{"contexts": 7}', '{"contexts": [7]}', '{"current-context": "lab", "contexts": []}',
        '{"current-context": "lab", "contexts": [{"name": "lab", "context": null}]}',
        '{"current-context": "lab", "contexts": [{"name": "lab"}], "clusters": [], "users": []}',
        "\x00\x01", "!!python/object/apply:os.system ['true']",
    ],
)  # fmt: skip
def test_what_is_no_kubeconfig_is_refused_by_its_name(tmp_path: Path, content: str) -> None:
    path = tmp_path / "broken"
    path.write_text(content)
    with pytest.raises(UsageError, match=r"/broken.*: ."):
        load_cluster(path)


def test_a_kubeconfig_that_may_not_be_read_as_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "broken"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"/broken: ."):
        load_cluster(path)


def test_a_credential_plugin_that_fails_is_told_of_and_not_done_without(tmp_path: Path) -> None:
    plugin: dict[str, Any] = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": ["-c", "import sys; sys.exit('login expired')"],
            "interactiveMode": "Never",
        }
    }
    path = write_kubeconfig(tmp_path / "k", "http://127.0.0.1:1", user=plugin)
    with pytest.raises(UsageError, match=r"kube context lab: exec: .*login expired"):
        load_cluster(path)


def test_a_credential_plugins_token_is_used(tmp_path: Path, server: KubeServer) -> None:
    told = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
            "status": {"token": TOKEN}}  # fmt: skip
    plugin: dict[str, Any] = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": ["-c", f"print({json.dumps(told)!r})"],
            "interactiveMode": "Never",
        }
    }
    server.put(pod_object("pod-a"))
    path = write_kubeconfig(tmp_path / "k", server.url, user=plugin)
    source = KubernetesPods(KubernetesOptions(kubeconfig=path))
    assert [pod.name for pod in source.pods().pods] == ["prod/pod-a"]


def test_the_kubeconfig_is_never_written(kubeconfig: Path, server: KubeServer) -> None:
    before = (kubeconfig.read_bytes(), kubeconfig.stat().st_mtime_ns)
    KubernetesPods(KubernetesOptions(kubeconfig=kubeconfig)).pods()
    assert (kubeconfig.read_bytes(), kubeconfig.stat().st_mtime_ns) == before


def test_inside_of_a_pod_its_service_account_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "namespace").write_text("team\n")
    (tmp_path / "ca.crt").write_bytes((TLS / "cert.pem").read_bytes())
    with KubeServer(tls=(TLS / "cert.pem", TLS / "key.pem")) as server:
        server.put(pod_object("pod-a", namespace="team"))
        monkeypatch.setattr(module, "SERVICE_ACCOUNT", tmp_path)
        monkeypatch.delenv("KUBECONFIG", raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
        source = KubernetesPods(KubernetesOptions())
        assert source.where == "namespace team of the pod's service account"
        assert [pod.name for pod in source.pods().pods] == ["team/pod-a"]
        (tmp_path / "token").unlink()
        with pytest.raises(UsageError, match="Service token file does not exist"):
            load_cluster()


def test_a_password_in_the_servers_url_is_not_shown(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "k", "http://ops:secret@127.0.0.1:1")
    assert load_cluster(path).server == "http://127.0.0.1:1"


def test_without_the_client_the_remedy_is_named_and_nothing_else_needs_it() -> None:
    script = """
import sys
sys.modules["kubernetes"] = None
import kvctl.cli.main, kvctl.fleet, kvctl.fleet.kubernetes as source
try:
    source.KubernetesPods(source.KubernetesOptions())
except source.KvctlError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == (
        "the Kubernetes client is not installed (pip install 'kvctl[k8s]')"
    )


def test_the_client_is_not_loaded_before_it_is_needed() -> None:
    script = (
        "import sys, kvctl.cli.main, kvctl.cli.tailing, kvctl.fleet.kubernetes; "
        "print([name for name in sys.modules if name.split('.')[0] == 'kubernetes'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
