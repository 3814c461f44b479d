"""The fleet that runs in Kubernetes: its pods now, or followed as they come and go."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from kvctl.errors import KvctlError
from kvctl.fleet.kubeapi import Change, PodsApi, Watching
from kvctl.fleet.kubeconfig import load_cluster
from kvctl.fleet.kubefaults import UnreachableError
from kvctl.fleet.kubepod import KubePod, read_pod
from kvctl.fleet.pod import Pod
from kvctl.fleet.presets import PLAIN, Preset
from kvctl.fleet.source import FleetSnapshot, SkippedPod

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0
"""Seconds between tries at an API server that fails, doubling from the first to the longest."""

_BRIEF_S = 1.0
_STOP_S = 2.0

Read: TypeAlias = Callable[[KubePod], Pod | SkippedPod]


@dataclass(frozen=True)
class KubernetesOptions:
    """Which pods of which cluster.

    ``namespace`` None is the one of the kube context. ``selector`` is a label selector as kubectl
    takes it; None is the preset's, and where that has none, every pod. ``port_forward`` says that
    the pods' own addresses are of no use here, so that a pod need not have one.
    """

    namespace: str | None = None
    all_namespaces: bool = False
    selector: str | None = None
    kube_context: str | None = None
    kubeconfig: Path | None = None
    preset: Preset = PLAIN
    port_forward: bool = False


class KubernetesPods:
    """A `PodSource`. Raises `NoKubernetesError`, and `UsageError` for a kubeconfig that is wrong.

    A snapshot is complete: where the list cannot be read to its end, there is a `KubernetesError`
    and no snapshot.
    """

    def __init__(self, options: KubernetesOptions) -> None:
        cluster = load_cluster(options.kubeconfig, options.kube_context)
        namespace = None if options.all_namespaces else options.namespace or cluster.namespace
        self.cluster = cluster
        self._read = partial(read_pod, preset=options.preset, forwarded=options.port_forward)
        self._namespace = namespace
        self._api = PodsApi(cluster, namespace, options.selector or options.preset.selector)

    @property
    def where(self) -> str:
        """The place in words: `namespace prod of kube context lab`."""
        return self._api.faults.where

    def pods(self) -> FleetSnapshot:
        """The fleet now."""
        found = _snapshot(self._api.read_all()[0], self._read)
        return replace(found, namespace=self._namespace)

    def watch(self) -> KubernetesWatch:
        """Follow the fleet from now on."""
        return KubernetesWatch(self._api, self._read)


class KubernetesWatch:
    """Follows a fleet in a background thread, until `close`.

    Made by a list, which raises as `KubernetesPods.pods` does. What fails later is tried again and
    again: from where the watch was, or by a new list where the server has forgotten that (410).
    """

    def __init__(self, api: PodsApi, read: Read) -> None:
        self._api = api
        self._read = read
        self._known: dict[str, KubePod] = {}
        self._stopping = threading.Event()
        self._lock = threading.Lock()  # guards what follows
        self._watching: Watching | None = None
        self._fault: KvctlError | None = None
        self._version = ""
        self._snapshot = FleetSnapshot(())
        self._relist()
        self._seen: FleetSnapshot | None = None
        self._thread = threading.Thread(target=self._run, name="kvctl-kubernetes", daemon=True)
        self._thread.start()

    def __enter__(self) -> KubernetesWatch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def poll(self) -> FleetSnapshot | None:
        """The fleet as it is known now; None where it is as at the last poll."""
        with self._lock:
            if self._snapshot == self._seen:
                return None
            self._seen = self._snapshot
            return self._snapshot

    @property
    def fault(self) -> KvctlError | None:
        """What keeps the watch from going on, None while it goes on."""
        with self._lock:
            return self._fault

    def close(self) -> None:
        """Stop following."""
        self._stopping.set()
        with self._lock:
            watching = self._watching
        if watching is not None:
            watching.close()
        self._thread.join(timeout=_STOP_S)

    def _run(self) -> None:
        wait = FIRST_WAIT_S
        resumable = True
        while not self._stopping.is_set():
            began = time.monotonic()
            changes = 0
            try:
                if not resumable:
                    self._relist()
                resumable = True
                watching = self._open()
            except KvctlError as error:
                resumable = isinstance(error, UnreachableError)
                with self._lock:
                    self._fault = error
            else:
                changes, resumable = self._follow(watching)
            if changes or time.monotonic() - began >= _BRIEF_S:
                wait = FIRST_WAIT_S
            else:
                self._stopping.wait(wait * random.uniform(0.75, 1.25))
                wait = min(wait * 2, LONGEST_WAIT_S)

    def _relist(self) -> None:
        pods, version = self._api.read_all()
        self._known = {pod.name: pod for pod in pods}
        self._publish(version)

    def _open(self) -> Watching:
        watching = self._api.watch(self._version)
        with self._lock:
            self._watching = watching
            self._fault = None
        if self._stopping.is_set():
            watching.close()
        return watching

    def _follow(self, watching: Watching) -> tuple[int, bool]:
        """Take the changes in; returns how many came, and whether to go on where they end.

        That a watch breaks off is in its nature. Only where no new one can be had is it a fault.
        """
        changes = 0
        try:
            for change in watching:
                self._take(change)
                changes += 1
        except UnreachableError:
            return changes, True
        except KvctlError:
            return changes, False
        finally:
            with self._lock:
                self._watching = None
        return changes, True

    def _take(self, change: Change) -> None:
        pod = change.pod
        if pod is not None and change.gone:
            self._known.pop(pod.name, None)
        elif pod is not None:
            self._known[pod.name] = pod
        self._publish(change.version or self._version)

    def _publish(self, version: str) -> None:
        snapshot = _snapshot(self._known.values(), self._read)
        with self._lock:
            self._version = version
            self._snapshot = snapshot


def _snapshot(told: Iterable[KubePod], read_one: Read) -> FleetSnapshot:
    read = [read_one(pod) for pod in sorted(told, key=lambda pod: pod.name)]
    return FleetSnapshot(
        tuple(each for each in read if isinstance(each, Pod)),
        tuple(each for each in read if not isinstance(each, Pod)),
    )
