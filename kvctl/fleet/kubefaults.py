"""What goes wrong with a Kubernetes API server, in words that name the thing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal, TypeAlias

from urllib3.exceptions import HTTPError, MaxRetryError, NewConnectionError, SSLError, TimeoutError

from kvctl.errors import KvctlError, UsageError

Verb: TypeAlias = Literal["list", "watch"]

_LONGEST = 300


class KubernetesError(KvctlError):
    """The API server refused, failed, or could not be reached."""


class UnreachableError(KubernetesError):
    """No answer, or one that broke off: asking again from the same place may help."""


class ExpiredError(KubernetesError):
    """What the request went on from is too old for the server (410): the list must begin anew."""


@dataclass(frozen=True)
class Faults:
    """Makes the errors of requests for pods. ``who`` are the credentials, as `kube context prod`.

    ``namespace`` is None for all of them.
    """

    who: str
    server: str
    namespace: str | None
    selector: str | None

    @property
    def where(self) -> str:
        """The place in words."""
        place = "all namespaces" if self.namespace is None else f"namespace {self.namespace}"
        return f"{place} of {self.who}"

    def refused(self, verb: Verb, status: int, body: bytes) -> KvctlError:
        """The error for an answer that is none; ``body`` is a `Status` object, or should be."""
        said = status_message(body)
        if status == HTTPStatus.BAD_REQUEST and self.selector is not None:
            return UsageError(
                f"the API server cannot read the selector {self.selector!r}: {said}",
                remedy="write it as for kubectl: app=vllm,tier!=test",
            )
        if status == HTTPStatus.UNAUTHORIZED:
            return KubernetesError(
                f"{self.server} does not accept the credentials of {self.who}",
                remedy="renew them as for kubectl, or choose others with --kube-context",
            )
        if status == HTTPStatus.FORBIDDEN:
            scope = "-A" if self.namespace is None else f"-n {self.namespace}"
            return KubernetesError(
                f"to {verb} pods in {self.where} is forbidden: {said}",
                remedy=f"a role must allow it: kubectl auth can-i {verb} pods {scope}",
            )
        if status == HTTPStatus.GONE:
            return ExpiredError(f"the {verb} of pods in {self.where} has expired: {said}")
        if status == HTTPStatus.NOT_FOUND:
            return KubernetesError(
                f"{self.server} has no pods to {verb}: {said}", remedy=self._which
            )
        return KubernetesError(
            f"{self.server} failed to {verb} pods in {self.where} with {status}: {said}",
            remedy="does kubectl get pods work?",
        )

    def unreachable(self, error: HTTPError) -> UnreachableError:
        """The error for a connection that was not made, or that broke."""
        if isinstance(error, MaxRetryError) and isinstance(error.reason, HTTPError):
            error = error.reason
        remedy = "is the cluster up, and reachable from here? kubectl cluster-info"
        if isinstance(error, SSLError):
            remedy = f"does {self.who} name the right certificate authority?"
        late = isinstance(error, TimeoutError) and not isinstance(error, NewConnectionError)
        reason = "no answer in time" if late else _reason(error)
        return UnreachableError(
            f"{self.server}, the API server of {self.who}, cannot be reached: {reason}",
            remedy=remedy,
        )

    def garbled(self, error: Exception) -> KubernetesError:
        """The error for an answer that Kubernetes would not give."""
        return KubernetesError(
            f"{self.server} sent what is no list of pods: {cut(str(error))}", remedy=self._which
        )

    @property
    def _which(self) -> str:
        return f"is the server of {self.who} a Kubernetes API server?"


def status_message(body: bytes) -> str:
    """What a `Status` says, or the beginning of whatever came in its stead."""
    try:
        status = json.loads(body)
    except (ValueError, RecursionError):
        status = None
    said = status.get("message") if isinstance(status, dict) else None
    return cut(str(said) if said else body.decode(errors="replace")) or "it said no more"


def cut(text: str) -> str:
    """The text in one line, and not longer than a line may be."""
    words = " ".join(text.split())
    return words if len(words) <= _LONGEST else words[: _LONGEST - 1] + "…"


def _reason(error: BaseException) -> str:
    """The operating system's word on it where there is one, else the library's."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror.lower()
        cause = cause.__cause__ or cause.__context__
    return cut(str(error).rpartition(": ")[2] or str(error))
