"""A pod's fields as they are written: `key=value,key=value,…` -> name and fields."""

from __future__ import annotations

from collections.abc import Iterable

from kvctl.errors import UsageError
from kvctl.fleet.wording import nearest, quoted

POD_KEYS = ("host", "events", "replay", "api", "model", "dp", "engine", "bind")
"""What may be said of a pod besides its name, in a `--pod` and in a context."""

_LONGEST_NAME = 512


def split_fields(text: str) -> tuple[str, dict[str, str]]:
    """Name and fields of a `--pod`: every key known and there once, no value empty.

    Raises `UsageError`.
    """
    parts = [part.strip() for part in text.split(",")]
    pairs = [(key.strip(), value.strip()) for key, _, value in (p.partition("=") for p in parts)]
    name = next((value for key, value in pairs if key == "name"), "")
    who = f"pod {quoted(name)}" if name else f"--pod {quoted(text)}"
    fields: dict[str, str] = {}
    for part, (key, value) in zip(parts, pairs, strict=True):
        if "=" not in part:
            raise UsageError(f"{who}: {quoted(part)} is not key=value")
        check_key(key, ("name", *POD_KEYS), who)
        if key in fields:
            raise UsageError(f"{who}: {key} is given twice")
        if not value:
            raise UsageError(f"{who}: {key} is empty")
        fields[key] = value
    if not name:
        raise UsageError(f"{who}: the name is missing", remedy="add name=…")
    del fields["name"]
    return name, fields


def check_key(key: str, known: Iterable[str], who: str) -> None:
    """Raise `UsageError` for a key that is not known."""
    choices = tuple(known)
    if key not in choices:
        raise UsageError(f"{who}: unknown key {quoted(key)}", remedy=nearest(key, choices))


def check_name(name: str) -> None:
    """Raise `UsageError` for what is not the name of a pod: `pod-a` or `namespace/pod-a`."""
    reason = ""
    if not name:
        reason = "it is empty"
    elif len(name) > _LONGEST_NAME:
        reason = f"it is longer than {_LONGEST_NAME} characters"
    elif not name.isprintable() or any(character.isspace() for character in name):
        reason = "it has spaces or control characters"
    elif name.count("/") > 1 or name.startswith("/") or name.endswith("/"):
        reason = "a slash stands once, between namespace and pod"
    if reason:
        raise UsageError(
            f"{quoted(name)} is not a pod's name: {reason}", remedy="expected pod-a or ns/pod-a"
        )
