"""What can go wrong between kvctl and an engine's HTTP side."""

# ruff: noqa: N818 - each is named after what happened, and is an EngineError

from __future__ import annotations

from kvctl.errors import KvctlError


class EngineError(KvctlError):
    """A call to an engine that did not bring what was asked.

    ``pod`` is the pod's name and ``call`` the request as `POST /sleep` (empty where the fault is
    no single request's). ``reason`` is the bare reason. ``sent`` tells whether the request may
    have reached the engine and may yet take effect: after a reset that timed out, the cache may
    well be wiped.
    """

    def __init__(
        self, pod: str, call: str, reason: str, *, remedy: str = "", sent: bool = False
    ) -> None:
        self.pod = pod
        self.call = call
        self.reason = reason
        self.sent = sent
        where = f"pod {pod}: {call}" if call else f"pod {pod}"
        super().__init__(f"{where}: {reason}", remedy=remedy)


class Unreachable(EngineError):
    """No answer: refused, no such host, no trusted TLS, too late, or cut off.

    An unreachable engine is in an unknown state; it is not asleep.
    """


class DevModeOff(EngineError):
    """The engine has no such control endpoint: it answered 404."""


class Unauthorized(EngineError):
    """The engine, or a proxy in front of it, wants another token (401, 403)."""


class Refused(EngineError):
    """The engine answered with an error of its own.

    ``status`` is the HTTP status; ``reason`` holds the engine's message, made printable.
    """

    def __init__(
        self,
        pod: str,
        call: str,
        reason: str,
        *,
        status: int,
        remedy: str = "",
        sent: bool = False,
    ) -> None:
        super().__init__(pod, call, reason, remedy=remedy, sent=sent)
        self.status = status


class NotAnEngine(EngineError):
    """Something answered, but not as an engine does: a web page, a redirect, another protocol."""


class ScrapeError(KvctlError):
    """A text that is not a whole page of Prometheus metrics, so that nothing in it is trusted."""
