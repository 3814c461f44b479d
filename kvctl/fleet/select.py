"""Which pods of a fleet a command line means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvctl.errors import UsageError
from kvctl.fleet.parse import is_address, pod_from_endpoint
from kvctl.fleet.pod import Pod
from kvctl.fleet.source import SkippedPod
from kvctl.fleet.wording import nearest, quoted


def select_pods(
    pods: Sequence[Pod],
    names: Iterable[str] = (),
    *,
    addresses: bool = False,
    skipped: Sequence[SkippedPod] = (),
) -> tuple[Pod, ...]:
    """The pods with these names, in the order of the names and each once; all without names.

    A pod in a namespace answers to its bare name where no other pod has that. With ``addresses``
    a word that is nobody's name but an address stands for the pod there. Raises `UsageError`
    that names what is unknown or ambiguous, and what there is; or, of a pod that was ``skipped``,
    why it was.
    """
    chosen: dict[str, Pod] = {}
    wanted = tuple(names)
    for name in wanted:
        pod = _find(pods, name)
        if pod is None and addresses and is_address(name):
            pod = pod_from_endpoint(name)
        if pod is None:
            raise _left_out(skipped, name) or _unknown(pods, name)
        chosen.setdefault(pod.name, pod)
    return tuple(chosen.values()) if wanted else tuple(pods)


def _find(pods: Sequence[Pod], name: str) -> Pod | None:
    for pod in pods:
        if pod.name == name:
            return pod
    found = [pod for pod in pods if pod.name.rpartition("/")[2] == name]
    if len(found) > 1:
        raise UsageError(
            f"pod {quoted(name)} is in several namespaces",
            remedy=f"one of {', '.join(pod.name for pod in found)}",
        )
    return found[0] if found else None


def _left_out(skipped: Sequence[SkippedPod], name: str) -> UsageError | None:
    for each in skipped:
        if name in (each.name, each.name.rpartition("/")[2]):
            return UsageError(f"pod {each.name} cannot be used: {each.reason}")
    return None


def _unknown(pods: Sequence[Pod], name: str) -> UsageError:
    if not pods:
        return UsageError(
            f"there is no pod {quoted(name)}: no pod is known",
            remedy="name pods with --pod or in a context of config.toml",
        )
    return UsageError(
        f"there is no pod {quoted(name)}", remedy=nearest(name, [pod.name for pod in pods])
    )
