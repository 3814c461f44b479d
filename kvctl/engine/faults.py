"""Why an HTTP exchange failed: the exceptions of requests and urllib3 in kvctl's words."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import requests
from requests.exceptions import InvalidSchema, InvalidURL
from urllib3.exceptions import ReadTimeoutError

from kvctl.engine.answers import printable
from kvctl.engine.errors import NotAnEngine, Unreachable
from kvctl.errors import KvctlError, UsageError


@dataclass(frozen=True)
class Attempt:
    """One exchange that failed: with whom, what was asked, and how far it came.

    ``connected`` says that a connection came about, so that the request may have been sent;
    ``expired`` that the time of ``seconds`` was up.
    """

    pod: str
    call: str
    base_url: str
    seconds: float
    connected: bool
    expired: bool

    @property
    def address(self) -> str:
        """Host and port, without any credentials."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2]

    @property
    def harmless(self) -> bool:
        """Whether the request could change nothing, sent or not."""
        return self.call.startswith("GET ")


def explain(error: Exception, attempt: Attempt) -> KvctlError:
    """The error to raise for what an exchange raised."""
    causes = tuple(_causes(error))
    if attempt.expired or _any(causes, requests.Timeout, ReadTimeoutError):
        return too_late(attempt)
    if _any(causes, InvalidURL, InvalidSchema):
        return UsageError(f"pod {attempt.pod}: {attempt.base_url!r} is not an HTTP URL")
    if type(error) is OSError and not attempt.connected:  # requests' own: no such CA bundle
        return UsageError(f"pod {attempt.pod}: {printable(str(error))}")
    if _any(causes, requests.exceptions.SSLError):
        return _tls(causes, attempt)
    if _is_other_protocol(causes):
        return NotAnEngine(
            attempt.pod,
            attempt.call,
            f"{attempt.address} does not speak HTTP",
            remedy="name the port of the engine's API, or https:// where it wants TLS",
            sent=attempt.connected,
        )
    return _broken_off(attempt) if attempt.connected else _not_connected(causes, attempt)


def too_late(attempt: Attempt) -> Unreachable:
    """The error for an exchange whose time was up."""
    if not attempt.connected:
        return Unreachable(
            attempt.pod,
            attempt.call,
            f"no connection to {attempt.address} within {attempt.seconds:g} s",
            remedy="is the host up, does a firewall drop packets?",
        )
    return Unreachable(
        attempt.pod,
        attempt.call,
        f"no whole answer from {attempt.address} within {attempt.seconds:g} s",
        remedy="is this the port of the engine's API, is the engine stuck?"
        if attempt.harmless
        else "the request may take effect yet",
        sent=True,
    )


def _broken_off(attempt: Attempt) -> Unreachable:
    return Unreachable(
        attempt.pod,
        attempt.call,
        f"{attempt.address} closed the connection before its answer was whole",
        remedy="the engine may have died"
        if attempt.harmless
        else "the engine may have died, and the request may have taken effect",
        sent=True,
    )


def _not_connected(causes: tuple[BaseException, ...], attempt: Attempt) -> Unreachable:
    remedy = "is the pod's api right?"
    if _any(causes, socket.gaierror):
        reason = f"no address is known for {urlsplit(attempt.base_url).hostname}"
    elif _any(causes, ConnectionRefusedError):
        reason, remedy = f"{attempt.address} refuses the connection", "is the engine running?"
    else:
        told = next((c.strerror for c in causes if isinstance(c, OSError) and c.strerror), "")
        reason = f"no connection to {attempt.address}" + (f": {told}" if told else "")
    return Unreachable(attempt.pod, attempt.call, reason, remedy=remedy)


def _tls(causes: tuple[BaseException, ...], attempt: Attempt) -> KvctlError:
    text = " ".join(str(cause) for cause in causes)
    if "WRONG_VERSION_NUMBER" in text or "UNKNOWN_PROTOCOL" in text:
        reason = f"{attempt.address} does not speak TLS"
        return NotAnEngine(attempt.pod, attempt.call, reason, remedy="try http://")
    if "CERTIFICATE_VERIFY_FAILED" in text:
        reason = f"the TLS certificate of {attempt.address} is not trusted"
        return Unreachable(attempt.pod, attempt.call, reason, remedy="name the CA that signed it")
    reason = f"no TLS connection with {attempt.address}"
    return Unreachable(attempt.pod, attempt.call, reason, remedy="is the pod's api right?")


def _is_other_protocol(causes: tuple[BaseException, ...]) -> bool:
    # A connection closed without a word is a BadStatusLine too, of its own kind.
    return _any(causes, http.client.BadStatusLine, http.client.LineTooLong) and not _any(
        causes, http.client.RemoteDisconnected
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and all that it wraps: as cause, as context, as ``reason``, as argument."""
    seen: set[int] = set()
    waiting: list[BaseException] = [error]
    while waiting:
        current = waiting.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        inner = (current.__cause__, current.__context__, getattr(current, "reason", None))
        waiting += [item for item in (*inner, *current.args) if isinstance(item, BaseException)]


def _any(causes: tuple[BaseException, ...], *kinds: type[BaseException]) -> bool:
    return any(isinstance(cause, kinds) for cause in causes)
