"""Which pods of a watched fleet have joined, and which have left, since one last looked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from kvctl.fleet.pod import Pod
from kvctl.fleet.source import FleetSnapshot, FleetWatch, SkippedPod


@dataclass(frozen=True)
class LeftPod:
    """A pod that can be read no more, and why."""

    pod: Pod
    reason: str


@dataclass(frozen=True)
class FleetChange:
    """What has changed. A pod that came back elsewhere has left, and has joined."""

    joined: tuple[Pod, ...] = ()
    left: tuple[LeftPod, ...] = ()


class Reach(Protocol):
    """What opens a way to pods, and closes it again."""

    def reach(self, pod: Pod) -> Pod:
        """The pod with the way to it, the same one until it is let go."""
        ...

    def let_go(self, pod: Pod) -> None:
        """Close the way to a pod that `reach` gave."""
        ...


class FleetFollower:
    """Tells the changes of a watched fleet, of the pods with these names only; of all without any.

    A name is `namespace/pod-a`, or `pod-a` in any namespace. The pods of the watch's first
    snapshot are `pods`; they have not joined. With ``reach`` a way is opened to the pods that are
    there, and closed, one look after it has been told, to one that left.
    """

    def __init__(
        self, watch: FleetWatch, names: Iterable[str] = (), reach: Reach | None = None
    ) -> None:
        self.watch = watch
        self._names = frozenset(names)
        self._reach = reach
        self._going: list[Pod] = []
        snapshot = self._wanted(watch.poll() or FleetSnapshot(()))
        self._pods = {pod.name: pod for pod in snapshot.pods}
        self._skipped = snapshot.skipped

    @property
    def pods(self) -> tuple[Pod, ...]:
        """The pods that are there as of the last look."""
        return tuple(self._pods.values())

    @property
    def skipped(self) -> tuple[SkippedPod, ...]:
        """Those that were left out then."""
        return self._skipped

    def changes(self) -> FleetChange:
        """What has changed since the last look. Never waits."""
        self._let_go()
        polled = self.watch.poll()
        if polled is None:
            return FleetChange()
        snapshot = self._wanted(polled)
        before, self._pods = self._pods, {pod.name: pod for pod in snapshot.pods}
        reasons = {each.name: each.reason for each in snapshot.skipped}
        self._skipped = snapshot.skipped
        change = FleetChange(
            tuple(pod for name, pod in self._pods.items() if before.get(name) != pod),
            tuple(
                LeftPod(pod, reasons.get(name, self._why_gone(name)))
                for name, pod in before.items()
                if self._pods.get(name) != pod
            ),
        )
        self._going = [left.pod for left in change.left]
        return change

    def _let_go(self) -> None:
        """Whoever read the pods that left has been told at the last look, and reads them no more:
        closed earlier, they would look as if their connection were lost."""
        if self._reach is not None:
            for pod in self._going:
                self._reach.let_go(pod)
        self._going = []

    def _why_gone(self, name: str) -> str:
        return "another has its name now" if name in self._pods else "it is gone"

    def _wanted(self, snapshot: FleetSnapshot) -> FleetSnapshot:
        if self._names:
            snapshot = FleetSnapshot(
                tuple(pod for pod in snapshot.pods if self._named(pod.name)),
                tuple(each for each in snapshot.skipped if self._named(each.name)),
                snapshot.complete,
            )
        if self._reach is not None:
            snapshot = replace(snapshot, pods=tuple(map(self._reach.reach, snapshot.pods)))
        return snapshot

    def _named(self, name: str) -> bool:
        return name in self._names or name.rpartition("/")[2] in self._names
