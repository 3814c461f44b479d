"""Prompts as people give them: token ids in a list or in a file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from kvctl.errors import UsageError
from kvctl.events import BlockHash

_LIST = re.compile(r"\[?\s*-?\d+(?:[\s,]+-?\d+)*\s*,?\s*\]?")
_SHOWN = 60


def parse_tokens(text: str) -> tuple[int, ...]:
    """Token ids from `1,2,3`, `[1, 2, 3]`, or a file that holds such a list.

    A file may also hold a JSON object with the list under `token_ids` or `prompt` (a request's
    body). Raises `UsageError` that says what was found instead.
    """
    stripped = text.strip()
    if _LIST.fullmatch(stripped):
        return _numbers(stripped)
    path = Path(text)
    try:
        if not stripped:  # the path of this folder
            raise FileNotFoundError
        content = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(
            f"{text[:_SHOWN]!r} is neither a list of token ids nor a file",
            remedy="give 1,2,3 or the name of a file with such a list",
        ) from None
    except (OSError, ValueError) as error:  # no text in it, or a name that no file can have
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise UsageError(f"cannot read token ids from {text[:_SHOWN]}: {reason}") from None
    return _from_file(path, content.strip())


def _from_file(path: Path, content: str) -> tuple[int, ...]:
    if _LIST.fullmatch(content):
        return _numbers(content)
    try:
        value: Any = json.loads(content)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        value = value.get("token_ids", value.get("prompt"))
    if isinstance(value, list) and value and all(type(item) is int for item in value):
        return tuple(value)
    raise UsageError(
        f"{path} holds no list of token ids",
        remedy='expected 1 2 3, [1, 2, 3] or {"token_ids": [1, 2, 3]}',
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"-?\d+", text)))


def parse_hash(text: str) -> BlockHash:
    """A block hash as kvctl prints it: decimal for ints, 32 or 64 hex digits for bytes."""
    if re.fullmatch(r"-?\d{1,20}", text):
        return int(text)
    if re.fullmatch(r"(?:0x)?(?:[0-9a-fA-F]{32}|[0-9a-fA-F]{64})", text):
        return bytes.fromhex(text.removeprefix("0x"))
    raise UsageError(
        f"{text[:_SHOWN]!r} is no block hash", remedy="give a decimal int, or 32 or 64 hex digits"
    )
