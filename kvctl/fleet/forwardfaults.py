"""Why a port of a pod is not forwarded, in words that name the pod and the remedy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from kvctl.fleet.kubefaults import KubernetesError, cut, status_message
from kvctl.fleet.pod import Role

TELL_AGAIN_S = 60.0
"""Seconds before a fault that goes on is told of again."""

GATHER_S = 0.5
"""Seconds to wait for what the other ports of a pod bring."""

_REMEDIES: dict[Role, str] = {
    "api": "is the engine up, and this its port?",
    "events": "is the engine up, and does its --kv-events-config publish there?",
    "replay": "does its --kv-events-config have a replay_endpoint there?",
}


class ForwardError(KubernetesError):
    """A port of a pod that the API server does not forward.

    ``about`` is the kind of fault, and what it is a fault of: of two alike one is told.
    """

    def __init__(self, message: str, *, remedy: str, about: tuple[object, ...]) -> None:
        super().__init__(message, remedy=remedy)
        self.about = about


class SilentPortError(ForwardError):
    """All is well, but that nothing listens on the port."""

    def __init__(self, pod: str, port: int, role: Role) -> None:
        super().__init__(
            f"pod {pod}: nothing listens on its port {port}",
            remedy=_REMEDIES[role],
            about=("silent", pod, port),
        )
        self.pod = pod
        self.port = port


TOO_MANY_FILES = ForwardError(
    "no more connections into pods: too many open files",
    remedy="name fewer pods, or raise the limit: ulimit -n",
    about=("files",),
)


@dataclass(frozen=True)
class ForwardFaults:
    """Makes the errors of one port, which is there for ``role``, of one pod, `namespace/name`.

    ``who`` are the credentials, as `kube context prod`.
    """

    who: str
    server: str
    pod: str
    port: int
    role: Role

    def refused(self, status: int, body: bytes) -> ForwardError:
        """The error for an answer other than 101; ``body`` is a `Status` object, or should be."""
        said = status_message(body)
        namespace, _, name = self.pod.partition("/")
        if status == HTTPStatus.UNAUTHORIZED:
            return self._unreached(
                f"{self.server} does not accept the credentials of {self.who}",
                "renew them as for kubectl, or choose others with --kube-context",
                status,
            )
        if status == HTTPStatus.FORBIDDEN:
            return self._unreached(
                f"to forward ports in namespace {namespace} of {self.who} is forbidden: {said}",
                "a role must allow get and create of pods/portforward: "
                f"kubectl auth can-i get pods --subresource=portforward -n {namespace}",
                status,
                namespace,
            )
        if status == HTTPStatus.NOT_FOUND:
            return self._unreached(
                f"{self.server} does not know it: {said}",
                f"is it still there? kubectl get pod -n {namespace} {name}",
                status,
                self.pod,
            )
        if status < HTTPStatus.BAD_REQUEST:
            return self.no_websocket(f"it answered {status}")
        return self._unreached(
            f"{self.server} failed to forward its ports with {status}: {said}",
            f"is it running? kubectl get pod -n {namespace} {name}",
            status,
            self.pod,
        )

    def said(self, text: str) -> ForwardError:
        """The error for what came over the channel for errors."""
        if "connection refused" in text.lower():
            return SilentPortError(self.pod, self.port, self.role)
        namespace, _, name = self.pod.partition("/")
        return ForwardError(
            f"pod {self.pod}: its port {self.port} is not forwarded: {cut(text) or 'no reason'}",
            remedy=f"does kubectl port-forward -n {namespace} {name} {self.port} work?",
            about=("said", self.pod, self.port),
        )

    def unreachable(self, reason: str) -> ForwardError:
        """The error for an API server that was not reached."""
        return self._unreached(
            f"{self.server}, the API server of {self.who}, cannot be reached: {reason}",
            "is the cluster up, and reachable from here? kubectl cluster-info",
            "unreachable",
        )

    def untrusted(self, error: Exception) -> ForwardError:
        """The error for a TLS connection that was not made."""
        return self._unreached(
            f"no TLS connection with {self.server}: {cut(str(error))}",
            f"does {self.who} name the right certificate authority?",
            "untrusted",
        )

    def no_websocket(self, reason: str) -> ForwardError:
        """The error for an answer that does not go over to WebSocket."""
        return self._unreached(
            f"{self.server} does not take a WebSocket: {cut(reason)}",
            "is there a proxy before the API server that lets none through?",
            "no websocket",
        )

    def garbled(self) -> ForwardError:
        """The error for messages that no API server sends."""
        return self._unreached(
            f"{self.server} does not forward ports as Kubernetes does",
            f"is the server of {self.who} a Kubernetes API server?",
            "garbled",
        )

    def _unreached(self, reason: str, remedy: str, *about: object) -> ForwardError:
        return ForwardError(
            f"pod {self.pod} cannot be reached: {reason}", remedy=remedy, about=about
        )


class FaultTeller:
    """Tells each fault once, and again only where it goes on for `TELL_AGAIN_S`.

    Ports of one pod on which nothing listens become one line. For one event loop.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._told: dict[tuple[object, ...], float] = {}
        self._silent: dict[str, list[SilentPortError]] = {}

    def tell(self, error: ForwardError) -> None:
        """Tell of this one, if it is news."""
        now = time.monotonic()
        self._told = {about: at for about, at in self._told.items() if now - at < TELL_AGAIN_S}
        if error.about in self._told:
            return
        self._told[error.about] = now
        if not isinstance(error, SilentPortError):
            self._tell(str(error))
            return
        if error.pod not in self._silent:
            asyncio.get_running_loop().call_later(GATHER_S, self._tell_silent, error.pod)
        self._silent.setdefault(error.pod, []).append(error)

    def finish(self) -> None:
        """Tell what waits for more of its kind."""
        for pod in tuple(self._silent):
            self._tell_silent(pod)

    def _tell_silent(self, pod: str) -> None:
        errors = self._silent.pop(pod, [])
        if len(errors) == 1:
            self._tell(str(errors[0]))
        elif errors:
            ports = ", ".join(str(port) for port in sorted(each.port for each in errors))
            self._tell(
                f"pod {pod}: nothing listens on its ports {ports} "
                "(is the engine up, and are these its ports?)"
            )
