"""An engine's HTTP answers, read: what a call did, and what an error says.

All versions of vLLM and SGLang are read here; nothing here talks to one. What each answers is in
vLLM ``entrypoints/serve/dev`` and SGLang ``entrypoints/http_server``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from kvctl.text import printable as escaped

MESSAGE_LIMIT = 300
"""Most characters of an engine's own message that are passed on."""


@dataclass(frozen=True)
class Reply:
    """One HTTP answer: status, the headers that matter here, and the whole body."""

    status: int
    body: bytes
    content_type: str = ""
    location: str = ""
    date: str = ""

    @property
    def text(self) -> str:
        """The body as text; what is not UTF-8 is replaced."""
        return self.body.decode("utf-8", "replace")

    @property
    def is_html(self) -> bool:
        """Whether this is a web page, which no engine serves where kvctl asks."""
        start = self.body[:64].lstrip().lower()
        return self.content_type.lower().startswith("text/html") or start.startswith(
            (b"<!doctype", b"<html")
        )


@dataclass(frozen=True)
class ControlAnswer:
    """What an engine said to a control call.

    ``ok`` is None where the answer does not tell whether the call worked: engines of older
    versions answer an empty 200 either way. ``status`` is the engine's own word for the state it
    is in now (`sleeping`, `awake`), empty where it has none; ``detail`` is a sentence.
    """

    ok: bool | None
    status: str
    detail: str


@dataclass(frozen=True)
class Usage:
    """Tokens of a completion's prompt, and how many of them the prefix cache held.

    ``cached_tokens`` is None where the engine does not tell (vLLM tells it only with
    ``--enable-prompt-tokens-details``).
    """

    prompt_tokens: int
    cached_tokens: int | None


def read_json(reply: Reply) -> Any:
    """The body as JSON, None where it is none."""
    try:
        return json.loads(reply.body)
    except (ValueError, RecursionError):
        return None


def read_reset(reply: Reply) -> ControlAnswer:
    """Answer to `/reset_prefix_cache`: `{"success": bool}` from vLLM 0.26 on, before that empty."""
    value = read_json(reply)
    success = value.get("success") if isinstance(value, dict) else None
    if success is True:
        return ControlAnswer(True, "", "the engine says that it reset its cache")
    if success is False:
        return ControlAnswer(
            False, "", "the engine did not reset its cache: blocks are held by running requests"
        )
    return silent("reset")


def read_sleep(reply: Reply, level: int) -> ControlAnswer:
    """Answer to `/sleep`: `{"status": "sleeping", "level": n}` from vLLM 0.32 on, before empty."""
    value = read_json(reply)
    status = _status(value)
    if not status:
        return silent("sleep")
    told = value.get("level")
    if status != "sleeping" or told not in (None, level):
        at = "" if told is None else f" at level {printable(str(told), 20)}"
        return ControlAnswer(False, status, f"the engine says {status}{at}, not asleep at {level}")
    return ControlAnswer(True, status, f"the engine says that it sleeps at level {level}")


def read_wake(reply: Reply, tags: tuple[str, ...]) -> ControlAnswer:
    """Answer to `/wake_up`: `{"status": "awake" | "sleeping"}` from vLLM 0.32 on, before empty.

    After a wake of some tags only, `sleeping` says either that other parts sleep on or that the
    engine knows no such tag: ``ok`` is None.
    """
    status = _status(read_json(reply))
    if not status:
        return silent("wake")
    if status == "awake":
        return ControlAnswer(True, status, "the engine says that it is awake")
    if tags:
        names = ", ".join(printable(tag, 40) for tag in tags)
        return ControlAnswer(
            None,
            status,
            f"the engine says {status}: it woke {names} and the rest sleeps on, or has no such tag",
        )
    return ControlAnswer(False, status, f"the engine says {status}, not awake")


def read_flush(reply: Reply) -> ControlAnswer:
    """Answer to SGLang's `/flush_cache`: 400 where it failed; older ones say 200 either way."""
    if reply.status == HTTPStatus.BAD_REQUEST:
        return ControlAnswer(False, "", f"the engine did not flush its cache: {message(reply)}")
    return silent("flush")


def silent(operation: str) -> ControlAnswer:
    """A 200 that says no more: older vLLM, SGLang's memory calls."""
    return ControlAnswer(
        None, "", f"the engine took the {operation} and does not tell whether it worked"
    )


def read_usage(reply: Reply) -> Usage | None:
    """The `usage` of a completion, None where the answer has none."""
    value = read_json(reply)
    usage = value.get("usage") if isinstance(value, dict) else None
    if not isinstance(usage, dict) or not _is_count(usage.get("prompt_tokens")):
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return Usage(usage["prompt_tokens"], cached if _is_count(cached) else None)


def read_models(reply: Reply) -> list[str] | None:
    """Names served, from `/v1/models`; None where the answer is no such list."""
    value = read_json(reply)
    data = value.get("data") if isinstance(value, dict) else None
    if not isinstance(data, list):
        return None
    return [row["id"] for row in data if isinstance(row, dict) and isinstance(row.get("id"), str)]


def read_flag(reply: Reply, name: str) -> bool | None:
    """The answer `{name: bool}`, None where it is none."""
    value = read_json(reply)
    flag = value.get(name) if isinstance(value, dict) else None
    return flag if isinstance(flag, bool) else None


def message(reply: Reply) -> str:
    """What an error answer says, in one printable line: the engine's own words where it has any.

    Forms: `{"error": {"message": …}}` (vLLM, SGLang), `{"error": …}` (vLLM's `/pause`),
    `{"detail": …}` or a list of details (FastAPI), `{"message": …}` (vLLM before 0.10), text.
    """
    told = "" if reply.is_html else _told(read_json(reply)) or reply.text
    return printable(told.strip()) or phrase(reply.status)


def phrase(status: int) -> str:
    """HTTP's own words for a status."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"HTTP status {status}"


def printable(text: str, limit: int = MESSAGE_LIMIT) -> str:
    """Text off the network as one line of at most ``limit`` characters, control codes escaped."""
    line = " ".join(text[: 4 * limit].split())
    safe = escaped(line)
    return safe if len(safe) <= limit and len(text) <= 4 * limit else safe[: limit - 1] + "…"


def _told(value: Any) -> str:
    if not isinstance(value, dict):
        return ""
    error = value.get("error")
    if isinstance(error, dict):
        error = error.get("message")
    for told in (error, value.get("detail"), value.get("message")):
        if isinstance(told, str) and told:
            return told
        if isinstance(told, list):
            texts = [_validation(item) for item in told[:5] if isinstance(item, dict)]
            return "; ".join(text for text in texts if text)
    return ""


def _validation(item: dict[str, Any]) -> str:
    place = item.get("loc")
    where = ".".join(str(part) for part in place) if isinstance(place, list) else ""
    text = item.get("msg")
    return f"{where}: {text}" if where and text else str(text or "")


def _status(value: Any) -> str:
    status = value.get("status") if isinstance(value, dict) else None
    return printable(status, 40) if isinstance(status, str) else ""


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
