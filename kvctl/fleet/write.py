"""`config.toml` changed: one value at a time, comments and order kept, never half written."""

from __future__ import annotations

import os
import tempfile
import tomllib
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import tomlkit
from tomlkit.container import Container, OutOfOrderTableProxy
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable, Table

from kvctl.errors import UsageError
from kvctl.fleet.config import Config, Context, config_path, parse_config, read_config
from kvctl.fleet.fields import split_fields
from kvctl.fleet.pod import Pod
from kvctl.fleet.wording import quoted

_Tree: TypeAlias = MutableMapping[str, Any]


def use_context(name: str, path: Path | None = None) -> Config:
    """Make ``name`` the current context of ``path`` (default: `config_path()`).

    Raises `UsageError` for a context that the file does not have.
    """

    def change(tree: _Tree, before: Config) -> None:
        before.context(name)
        tree["current-context"] = name

    return _change(path or config_path(), change)


def set_pod(context: str, spec: str, path: Path | None = None) -> Pod:
    """Write the pod that ``spec`` (the text of a `--pod`) describes into a context.

    Context and file are made where they are missing; the first context of a file becomes its
    current one. Fields of a pod that is there already are replaced one by one, as kubectl does,
    and what ``spec`` does not name stays. Raises `UsageError`, and then nothing is written.
    """
    name, fields = split_fields(spec)
    _check_name(context)

    def change(tree: _Tree, before: Config) -> None:
        inner = tree
        for key in ("contexts", context, "pods"):
            inner = _table(inner, key, headless=True)
        pod = _table(inner, name)
        for key, value in fields.items():
            pod[key] = _toml_value(key, value)
        if before.current is None:
            tree["current-context"] = context

    config = _change(path or config_path(), change)
    return next(pod for pod in config.contexts[context].pods if pod.name == name)


def set_context(
    name: str,
    values: Mapping[str, str],
    kubernetes: Mapping[str, str | bool],
    path: Path | None = None,
) -> Context:
    """Write what a context says besides its pods, each value under its key in the file.

    ``kubernetes`` goes into the table of that name; an empty text or False takes a key away.
    Context and file are made where they are missing; the first context of a file becomes its
    current one. Raises `UsageError`, and then nothing is written.
    """
    _check_name(name)

    def change(tree: _Tree, before: Config) -> None:
        context = _table(_table(tree, "contexts", headless=True), name)
        _fill(context, values)
        if kubernetes:
            _fill(_table(context, "kubernetes"), kubernetes)
        if before.current is None:
            tree["current-context"] = name

    return _change(path or config_path(), change).contexts[name]


def _fill(table: _Tree, values: Mapping[str, str | bool]) -> None:
    for key, value in values.items():
        if value:
            table[key] = value
        elif key in table:
            del table[key]


def _check_name(context: str) -> None:
    if not context or not context.isprintable() or context != context.strip():
        raise UsageError(f"{quoted(context)} is not a context's name")


def _change(path: Path, change: Callable[[_Tree, Config], None]) -> Config:
    """Apply ``change`` to the file, if what comes out is valid and what was meant."""
    text = read_config(path) or ""
    before = parse_config(text, path)
    meant = tomllib.loads(text)
    change(meant, before)
    try:
        document = tomlkit.parse(text)
        change(document, before)
        changed = tomlkit.dumps(document)
        faithful = tomllib.loads(changed) == meant
    except (TOMLKitError, ValueError, TypeError, KeyError):
        faithful = False
    if not faithful:  # tomlkit does not know every way to write a table
        raise UsageError(
            f"{path} cannot be changed without writing it anew",
            remedy="edit it by hand, or write its contexts as [contexts.NAME] tables",
        )
    after = parse_config(changed, path)
    if changed != text:
        _replace(path, changed)
    return after


def _table(parent: _Tree, name: str, *, headless: bool = False) -> _Tree:
    """The table of that name, made where it is missing; ``headless`` without a line of its own."""
    if name not in parent:
        if isinstance(parent, InlineTable):
            parent[name] = tomlkit.inline_table()
        elif isinstance(parent, Container | Table | OutOfOrderTableProxy):
            parent[name] = tomlkit.table(is_super_table=headless)
        else:
            parent[name] = {}
    found: _Tree = parent[name]
    return found


def _toml_value(key: str, value: str) -> str | int | bool | list[str]:
    """A field as it is best read in TOML; its spelling was not checked yet."""
    if key == "dp" and value.isascii() and value.isdigit():
        return int(value)
    if key == "bind" and value in ("true", "false"):
        return value == "true"
    return [part.strip() for part in value.split("|")] if "|" in value else value


def _replace(path: Path, text: str) -> None:
    """Put ``text`` in the file's place in one step: a reader sees the old or the new one."""
    try:
        target = path.resolve()  # a link to the file stays a link
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(target)
        except BaseException:
            with suppress(OSError):
                Path(temporary).unlink()
            raise
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "a loop of links"
        raise UsageError(f"{path} cannot be written: {reason}") from None
