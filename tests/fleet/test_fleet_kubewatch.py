"""A fleet in Kubernetes followed through everything that a watch lives through."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kube_server import KubeServer, pod_object, status

from kvctl.fleet import FleetSnapshot, FleetWatch, SkippedPod
from kvctl.fleet import kubernetes as module
from kvctl.fleet.kubefaults import KubernetesError
from kvctl.fleet.kubernetes import KubernetesOptions, KubernetesPods, KubernetesWatch

PATIENCE = 30.0


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_WAIT_S", 0.02)
    monkeypatch.setattr(module, "LONGEST_WAIT_S", 0.2)


@pytest.fixture
def source(server: KubeServer, kubeconfig: Path) -> KubernetesPods:
    server.put(pod_object("a"))
    return KubernetesPods(KubernetesOptions(kubeconfig=kubeconfig, selector="app=vllm"))


@pytest.fixture
def watch(source: KubernetesPods, server: KubeServer) -> Iterator[KubernetesWatch]:
    with source.watch() as watch:
        until(lambda: server.watches == 1)
        yield watch


def until(condition: Callable[[], object], what: str = "") -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def becomes(watch: FleetWatch, *names: str) -> FleetSnapshot:
    """Wait until the fleet is these pods; returns the snapshot."""
    deadline = time.monotonic() + PATIENCE
    seen = None
    while time.monotonic() < deadline:
        seen = watch.poll() or seen
        if seen is not None and [pod.name for pod in seen.pods] == [f"prod/{n}" for n in names]:
            return seen
        time.sleep(0.01)
    raise AssertionError(f"the fleet is {seen}, fault {watch.fault}")


def test_a_pod_that_appears_and_one_that_goes(watch: KubernetesWatch, server: KubeServer) -> None:
    assert becomes(watch, "a").complete
    server.put(pod_object("b", ip="10.0.0.2"))
    becomes(watch, "a", "b")
    server.remove("a")
    becomes(watch, "b")
    assert len(server.asked("list")) == 1


def test_what_changes_nothing_for_kvctl_is_no_news(
    watch: KubernetesWatch, server: KubeServer
) -> None:
    becomes(watch, "a")
    server.put(pod_object("a"))  # a new uid and resourceVersion, and nothing else
    server.put(pod_object("b", ip="10.0.0.2"))
    becomes(watch, "a", "b")
    assert watch.poll() is None


def test_a_pod_becomes_ready_and_is_deleted_in_steps(
    watch: KubernetesWatch, server: KubeServer
) -> None:
    server.put(pod_object("b", phase="Pending", ip=None))
    until(lambda: (watch.poll() or FleetSnapshot(())).skipped)
    server.put(pod_object("b", ip="10.0.0.2"))
    becomes(watch, "a", "b")
    server.put(pod_object("b", ip="10.0.0.2", deleting=True))
    assert becomes(watch, "a").skipped == (SkippedPod("prod/b", "it is being deleted"),)


def test_a_pod_that_loses_its_label_is_gone(watch: KubernetesWatch, server: KubeServer) -> None:
    becomes(watch, "a")
    server.put(pod_object("a", labels={"app": "other"}))
    becomes(watch)


def test_a_watch_that_is_cut_goes_on_where_it_was(
    watch: KubernetesWatch, server: KubeServer
) -> None:
    server.put(pod_object("b", ip="10.0.0.2"))
    becomes(watch, "a", "b")
    server.cut_watches()
    server.remove("b")
    server.put(pod_object("c", ip="10.0.0.3"))
    becomes(watch, "a", "c")
    assert len(server.asked("list")) == 1
    first, second = (int(each["resourceVersion"]) for each in server.asked("watch")[:2])
    assert second == first + 1


def test_a_bookmark_moves_the_place_to_go_on_from(
    watch: KubernetesWatch, server: KubeServer
) -> None:
    becomes(watch, "a")
    server.put(pod_object("other", labels={"app": "web"}))  # not seen by this selector
    server.bookmarks = True
    until(lambda: not server.bookmarks)
    time.sleep(0.1)
    server.cut_watches()
    until(lambda: len(server.asked("watch")) > 1)
    first, second = (int(each["resourceVersion"]) for each in server.asked("watch")[:2])
    assert second == first + 1
    assert server.asked("watch")[0]["allowWatchBookmarks"].lower() == "true"


def test_a_place_that_the_server_has_forgotten_is_found_by_a_new_list(
    watch: KubernetesWatch, server: KubeServer
) -> None:
    becomes(watch, "a")
    server.remove("a")
    server.put(pod_object("b", ip="10.0.0.2"))
    becomes(watch, "b")
    # Of what happens now, no watch can tell any more.
    server.answer_next(410, json.dumps(status(410, "too old")).encode(), verb="watch")
    server.cut_watches()
    server.forget()
    server.put(pod_object("c", ip="10.0.0.3"))
    becomes(watch, "b", "c")
    until(lambda: len(server.asked("list")) >= 2)


def test_a_place_forgotten_without_a_refusal_is_found_by_a_new_list_too(
    watch: KubernetesWatch, server: KubeServer
) -> None:
    becomes(watch, "a")
    server.forget()  # the next watch gets an ERROR event as its first
    server.cut_watches()
    until(lambda: len(server.asked("list")) >= 2)
    server.put(pod_object("b", ip="10.0.0.2"))
    becomes(watch, "a", "b")


@pytest.mark.parametrize(
    "line",
    [
        b"garbage\n", b"[]\n", b'{"type": 7}\n', b'{"type": "ADDED", "object": 7}\n',
        b'{"type": "ADDED"}\n', b'{"type": "ERROR", "object": "?"}\n',
        b'{"type": "ERROR", "object": {"code": 500, "message": "etcd"}}\n', b"\xff\xfe\n",
        b'{"type": "BOOKMARK", "object": {}}\n', b"[" * 50_000 + b"\n", b'{"type": "ADDED", "obj',
    ],
)  # fmt: skip
def test_nothing_that_comes_in_a_watch_ends_it(
    watch: KubernetesWatch, server: KubeServer, line: bytes
) -> None:
    becomes(watch, "a")
    for _ in range(3):
        server.answer_next(200, line, verb="watch")
    server.cut_watches()
    server.put(pod_object("b", ip="10.0.0.2"))
    becomes(watch, "a", "b")
    assert watch.fault is None


@pytest.mark.parametrize("code", [401, 403, 429, 500, 503])
def test_a_watch_that_is_refused_is_a_fault_until_it_is_not(
    watch: KubernetesWatch, server: KubeServer, code: int
) -> None:
    becomes(watch, "a")
    for _ in range(5):
        server.answer_next(code, json.dumps(status(code, "not now")).encode(), verb="watch")
    server.cut_watches()
    until(lambda: watch.fault is not None)
    assert isinstance(watch.fault, KubernetesError)
    server.put(pod_object("b", ip="10.0.0.2"))
    becomes(watch, "a", "b")
    until(lambda: watch.fault is None)


def test_who_may_list_but_not_watch_sees_the_fleet_by_lists(
    source: KubernetesPods, server: KubeServer
) -> None:
    server.forbidden = {("watch", "prod")}
    with source.watch() as watch:
        server.put(pod_object("b", ip="10.0.0.2"))
        becomes(watch, "a", "b")
        assert watch.fault is not None
        assert "to watch pods in namespace prod of kube context lab is forbidden" in str(
            watch.fault
        )
        assert "kubectl auth can-i watch pods -n prod" in str(watch.fault)


def test_a_server_that_is_away_for_a_while_is_found_again(
    source: KubernetesPods, server: KubeServer, kubeconfig: Path
) -> None:
    with source.watch() as watch:
        becomes(watch, "a")
        server.close()
        until(lambda: watch.fault is not None)
        assert "cannot be reached" in str(watch.fault)
        assert watch.poll() is None  # nobody has said that a pod is gone
        with KubeServer(port=server.port, version=2000) as again:
            again.put(pod_object("b", ip="10.0.0.2"))
            becomes(watch, "b")
            until(lambda: watch.fault is None)


def test_the_first_list_raises_as_any_list_does(source: KubernetesPods, server: KubeServer) -> None:
    server.answer_next(500, b"no")
    with pytest.raises(KubernetesError, match="with 500"):
        source.watch()


def test_a_watch_is_asked_to_end_now_and_then(server: KubeServer, watch: KubernetesWatch) -> None:
    assert float(server.asked("watch")[0]["timeoutSeconds"]) > 60
    assert server.asked("watch")[0]["labelSelector"] == "app=vllm"


def test_closing_ends_a_watch_that_waits_for_news(
    source: KubernetesPods, server: KubeServer
) -> None:
    watch = source.watch()
    until(lambda: server.watches == 1)
    watch.close()
    assert not watch._thread.is_alive()
    watch.close()
