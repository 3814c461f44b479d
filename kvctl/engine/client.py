"""`EngineClient`: one pod's HTTP side, vLLM's or SGLang's, behind one interface."""

from __future__ import annotations

import time
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal, TypeAlias

from kvctl.engine import answers
from kvctl.engine.answers import ControlAnswer, Reply, Usage
from kvctl.engine.errors import DevModeOff, EngineError, NotAnEngine, Refused, Unauthorized
from kvctl.engine.transport import Transport
from kvctl.errors import UsageError

EngineKind: TypeAlias = Literal["vllm", "sglang"]
"""Which engine serves a pod, and so which control endpoints it has."""

DEFAULT_TIMEOUT = 10.0
"""Seconds for one call, from connecting to the answer's last byte."""


class EngineClient:
    """Calls one pod's engine.

    ``via`` is the base URL of a local port that leads to ``base_url``, if there is one: it is what
    is called, and ``base_url`` what messages name.
    Every method takes ``timeout`` (seconds for the whole call) to override the client's own: a
    sleep of a large model takes longer than a scrape. Every method raises `EngineError`:
    `Unreachable`, `Unauthorized`, `Refused` and `NotAnEngine`, control calls `DevModeOff` too.
    A client holds no connection and may be used from several threads.
    """

    def __init__(
        self,
        pod_name: str,
        base_url: str,
        *,
        kind: EngineKind = "vllm",
        api_key: str | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        verify: bool | str | Path = True,
        via: str | None = None,
    ) -> None:
        self.pod_name = pod_name
        self.base_url = base_url
        self.kind = kind
        self.timeout = timeout
        self._has_key = api_key is not None
        trust = verify if isinstance(verify, bool) else str(verify)
        self._transport = Transport(pod_name, base_url, api_key=api_key, verify=trust, via=via)

    def __repr__(self) -> str:
        return f"EngineClient({self.pod_name!r}, {self.base_url!r}, kind={self.kind!r})"

    def reset(
        self,
        *,
        reset_running: bool = False,
        reset_external: bool = False,
        timeout: float | None = None,
    ) -> ControlAnswer:
        """Wipe the prefix cache.

        ``reset_running`` preempts running requests so that their blocks can go too (vLLM 0.12),
        ``reset_external`` clears a connector's cache as well (vLLM 0.13); an older engine
        ignores them. SGLang has neither: `UsageError`.
        """
        if self.kind == "sglang":
            if reset_running or reset_external:
                raise UsageError(f"pod {self.pod_name}: SGLang's flush takes no such option")
            return answers.read_flush(
                self._control("/flush_cache", timeout=timeout, accept=HTTPStatus.BAD_REQUEST)
            )
        flags = {"reset_running_requests": reset_running, "reset_external": reset_external}
        params = [(name, "true") for name, wanted in flags.items() if wanted]
        return answers.read_reset(
            self._control("/reset_prefix_cache", params=params, timeout=timeout)
        )

    def sleep(
        self, level: int = 1, *, mode: str | None = None, timeout: float | None = None
    ) -> ControlAnswer:
        """Put the engine to sleep: level 1 offloads the weights, 2 discards them, 0 only pauses.

        ``mode`` (`abort`, `wait`, `keep`; vLLM 0.17) says what becomes of running requests;
        `wait` answers when they are done. SGLang releases its memory, which is neither level:
        level 0 and ``mode`` are a `UsageError` there.
        """
        if self.kind == "sglang":
            if level == 0 or mode is not None:
                raise UsageError(f"pod {self.pod_name}: SGLang has no sleep level 0 and no modes")
            self._control("/release_memory_occupation", body={}, timeout=timeout)
            return answers.silent("release")
        params = [("level", str(level))] + ([("mode", mode)] if mode is not None else [])
        return answers.read_sleep(self._control("/sleep", params=params, timeout=timeout), level)

    def wake(self, tags: Sequence[str] = (), *, timeout: float | None = None) -> ControlAnswer:
        """Wake the engine, or only the parts named: `weights`, `kv_cache`, `scheduling`."""
        tags = tuple(tags)
        if self.kind == "sglang":
            body = {"tags": list(tags)} if tags else {}
            self._control("/resume_memory_occupation", body=body, timeout=timeout)
            return answers.silent("resume")
        params = [("tags", tag) for tag in tags]
        return answers.read_wake(self._control("/wake_up", params=params, timeout=timeout), tags)

    def is_sleeping(self, *, timeout: float | None = None) -> bool | None:
        """Whether the engine sleeps at any level, 0 included; None for SGLang: it cannot tell."""
        if self.kind == "sglang":
            return None
        return self._flag(
            self._control("/is_sleeping", method="GET", timeout=timeout), "is_sleeping"
        )

    def is_paused(self, *, timeout: float | None = None) -> bool | None:
        """Whether scheduling is paused; None for an engine that has no `/is_paused`."""
        if self.kind == "sglang":
            return None
        try:
            return self._flag(
                self._control("/is_paused", method="GET", timeout=timeout), "is_paused"
            )
        except DevModeOff:
            return None

    def health(self, *, timeout: float | None = None) -> bool:
        """Whether the engine calls itself healthy: a sleeping one does, a dead one does not."""
        try:
            self._call("GET", "/health", timeout=timeout)
        except Refused as error:
            if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                return False
            raise
        return True

    def clock_skew(self, *, timeout: float | None = None) -> float | None:
        """How many seconds the engine's clock is ahead of ours, by the date of an answer.

        Good to a second; None where the answer bears none, or none came.
        """
        began = time.time()
        try:
            reply = self._call("GET", "/health", timeout=timeout)
        except EngineError:
            return None
        try:
            theirs = parsedate_to_datetime(reply.date).timestamp()
        except (TypeError, ValueError):
            return None
        return theirs + 0.5 - (began + time.time()) / 2  # it is cut to whole seconds

    def metrics(self, *, timeout: float | None = None) -> str:
        """The page of metrics, as text for `parse_scrape`."""
        reply = self._call("GET", "/metrics", timeout=timeout)
        try:
            return reply.body.decode("utf-8")
        except UnicodeDecodeError:
            raise NotAnEngine(self.pod_name, "GET /metrics", "the answer is not text") from None

    def models(self, *, timeout: float | None = None) -> list[str]:
        """Names the engine serves, the base model's first, then its LoRA adapters'."""
        models = answers.read_models(self._call("GET", "/v1/models", timeout=timeout))
        if models is None:
            raise self._unexpected("GET /v1/models")
        return models

    def complete(
        self,
        token_ids: Sequence[int],
        model: str,
        *,
        max_tokens: int = 1,
        cache_salt: str | None = None,
        timeout: float | None = None,
    ) -> Usage:
        """Have the engine complete a prompt of token ids: it steps, and tells what it had cached.

        A sleeping engine does not answer before it wakes: `Unreachable` at the timeout.
        """
        body: dict[str, Any] = {
            "model": model,
            "prompt": list(token_ids),
            "max_tokens": max_tokens,
            "temperature": 0,
        }
        if cache_salt is not None:
            body["cache_salt"] = cache_salt
        usage = answers.read_usage(
            self._call("POST", "/v1/completions", body=body, timeout=timeout)
        )
        if usage is None:
            raise self._unexpected("POST /v1/completions")
        return usage

    def _control(
        self,
        path: str,
        *,
        method: str = "POST",
        params: Sequence[tuple[str, str]] = (),
        body: Any = None,
        timeout: float | None = None,
        accept: int | None = None,
    ) -> Reply:
        try:
            return self._call(
                method, path, params=params, body=body, timeout=timeout, accept=accept
            )
        except Refused as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            raise DevModeOff(
                self.pod_name,
                f"{method} {path}",
                "the engine has no such endpoint (404)",
                remedy=self._how_to_get(path),
            ) from None

    def _how_to_get(self, path: str) -> str:
        if self.kind == "sglang":
            return "is this pod's engine SGLang, and its api URL right?"
        needs = "VLLM_SERVER_DEV_MODE=1"
        if path in ("/sleep", "/wake_up", "/is_sleeping"):
            needs += " and --enable-sleep-mode"
        return f"start vLLM with {needs}"

    def _call(
        self,
        method: str,
        path: str,
        *,
        params: Sequence[tuple[str, str]] = (),
        body: Any = None,
        timeout: float | None = None,
        accept: int | None = None,
    ) -> Reply:
        """The answer with status 2xx or ``accept``; every other one is raised."""
        reply = self._transport.exchange(
            method,
            path,
            params=params,
            body=body,
            timeout=self.timeout if timeout is None else timeout,
        )
        if reply.status != accept and not HTTPStatus.OK <= reply.status < 300:
            raise self._error(f"{method} {path}", reply)
        if reply.is_html:
            raise NotAnEngine(
                self.pod_name,
                f"{method} {path}",
                "the answer is a web page",
                remedy=f"is {self.base_url} the engine's API?",
            )
        return reply

    def _error(self, call: str, reply: Reply) -> EngineError:
        status, told = reply.status, answers.message(reply)
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return Unauthorized(
                self.pod_name,
                call,
                f"the token is refused ({status}): {told}"
                if self._has_key
                else f"a token is wanted ({status}): {told}",
                remedy="set KVCTL_API_KEY or KVCTL_API_KEY_FILE",
            )
        if 300 <= status < 400:
            target = answers.printable(reply.location, 200) or "elsewhere"
            return NotAnEngine(
                self.pod_name,
                call,
                f"the answer ({status}) points to {target}",
                remedy="kvctl follows no redirect: name the engine's own URL",
            )
        return Refused(
            self.pod_name,
            call,
            f"the engine answered {status}: {told}",
            status=status,
            sent=status >= HTTPStatus.INTERNAL_SERVER_ERROR,
        )

    def _flag(self, reply: Reply, name: str) -> bool:
        flag = answers.read_flag(reply, name)
        if flag is None:
            raise self._unexpected(f"GET /{name}")
        return flag

    def _unexpected(self, call: str) -> NotAnEngine:
        return NotAnEngine(
            self.pod_name, call, "the answer is not what an engine answers here", sent=True
        )
