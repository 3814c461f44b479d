"""Where a fleet's pods come from, behind one protocol."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from kvctl.errors import KvctlError, UsageError
from kvctl.fleet.pod import Pod


@dataclass(frozen=True)
class SkippedPod:
    """A pod that was seen and left out, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class FleetSnapshot:
    """The pods of a fleet at one time.

    ``complete`` says that the list was read to its end: only then does a pod's absence mean that
    the pod is gone. ``namespace`` is the one that was listed: a pod of another, `other/pod-a`, is
    not spoken of. None where pods of all were.
    """

    pods: tuple[Pod, ...]
    skipped: tuple[SkippedPod, ...] = ()
    complete: bool = True
    namespace: str | None = None

    def speaks_of(self, pod: str) -> bool:
        """Whether the pod would be in the list if it were there."""
        return self.namespace is None or pod.startswith(f"{self.namespace}/")


class PodSource(Protocol):
    """Something that can be asked for the fleet again and again."""

    def pods(self) -> FleetSnapshot:
        """The fleet now."""
        ...


class FleetWatch(Protocol):
    """A fleet that is followed as it changes."""

    def poll(self) -> FleetSnapshot | None:
        """The fleet as it is known now; None where it is as at the last poll. Never waits."""
        ...

    @property
    def fault(self) -> KvctlError | None:
        """What keeps the fleet from being followed now, None while nothing does."""
        ...

    def close(self) -> None:
        """Stop following."""
        ...


class StaticPods:
    """A fleet written down: in flags, or in a context. Always complete.

    Raises `UsageError` for two pods of one name.
    """

    def __init__(self, pods: Iterable[Pod]) -> None:
        self._pods = tuple(pods)
        seen: set[str] = set()
        for pod in self._pods:
            if pod.name in seen:
                raise UsageError(f"pod {pod.name} is given twice", remedy="give each its own name")
            seen.add(pod.name)

    def pods(self) -> FleetSnapshot:
        """The pods as they were given."""
        return FleetSnapshot(self._pods)


def merge_pods(flags: Iterable[Pod], context: Iterable[Pod]) -> tuple[Pod, ...]:
    """The pods of the command line, then those of a context that it does not name anew."""
    first = StaticPods(flags).pods().pods
    names = {pod.name for pod in first}
    return (*first, *(pod for pod in context if pod.name not in names))
