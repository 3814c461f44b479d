"""`config.toml` read: contexts, each a fleet with what belongs to it, as kubectl has them."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import platformdirs

from kvctl.errors import UsageError
from kvctl.fleet.build import build_pod
from kvctl.fleet.fields import POD_KEYS, check_key
from kvctl.fleet.kubecontext import KUBERNETES_KEYS, KubernetesContext, read_kubernetes
from kvctl.fleet.pod import Pod
from kvctl.fleet.wording import nearest, quoted

CONFIG_VARIABLE = "KVCTL_CONFIG"
CONTEXT_VARIABLE = "KVCTL_CONTEXT"

MAX_CONFIG = 4 * 1024 * 1024
"""Largest configuration that is read, in bytes."""

_LISTS = ("events", "replay")


@dataclass(frozen=True)
class Context:
    """A fleet and what belongs to it. The one without a name is what holds where none is chosen.

    It lists its ``pods``, or says where they are in ``kubernetes``. ``index`` is an index's URL,
    ``model`` the name of the model where a pod names none.
    """

    name: str = ""
    pods: tuple[Pod, ...] = ()
    index: str | None = None
    api_key_file: Path | None = None
    model: str | None = None
    kubernetes: KubernetesContext | None = None


@dataclass(frozen=True)
class Config:
    """A configuration file's contents; empty where there is no file."""

    path: Path
    current: str | None = None
    contexts: Mapping[str, Context] = field(default_factory=dict)

    def context(self, name: str | None = None) -> Context:
        """The context of that name, or ``KVCTL_CONTEXT``'s, or the file's current one.

        An empty context where none of the three is set. Raises `UsageError` for one that the
        file does not have.
        """
        wanted = name or os.environ.get(CONTEXT_VARIABLE) or self.current
        if not wanted:
            return Context()
        if wanted in self.contexts:
            return self.contexts[wanted]
        remedy = nearest(wanted, self.contexts) if self.contexts else "the file has no context"
        raise UsageError(f"{self.path} has no context {quoted(wanted)}", remedy=remedy)


def config_path() -> Path:
    """Where the configuration is: ``KVCTL_CONFIG``, or `config.toml` in the user's directory."""
    told = os.environ.get(CONFIG_VARIABLE)
    if told:
        return Path(told).expanduser()
    return Path(platformdirs.user_config_dir("kvctl")) / "config.toml"


def load_config(path: Path | None = None) -> Config:
    """The configuration in ``path`` (default: `config_path()`), empty where there is no file.

    Raises `UsageError` that names the file, the table and the key.
    """
    path = path or config_path()
    text = read_config(path)
    return Config(path) if text is None else parse_config(text, path)


def read_config(path: Path) -> str | None:
    """The file's text, None where there is no file. Raises `UsageError`."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_CONFIG + 1)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise UsageError(f"{path} cannot be read: {reason}") from None
    if len(content) > MAX_CONFIG:
        raise UsageError(
            f"{path} is larger than {MAX_CONFIG} bytes", remedy="is it the right file?"
        )
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text", remedy="is it the right file?") from None


def parse_config(text: str, path: Path) -> Config:
    """The configuration that ``text`` is; ``path`` for messages and for relative paths in it."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise UsageError(f"{path} is not TOML: {reason}") from None
    table = _Table(path, "", data)
    table.check_keys("current-context", "contexts")
    contexts = {
        name: _context(name, contents) for name, contents in table.tables("contexts").items()
    }
    return Config(path, table.text("current-context"), contexts)


class _Table:
    """One table of the file, its values asked for by type."""

    def __init__(self, path: Path, name: str, data: Mapping[str, Any]) -> None:
        self.path = path
        self.data = data
        self._name = name
        self._prefix = f"{name}." if name else ""

    @property
    def who(self) -> str:
        return f"{self.path}: [{self._name}]" if self._name else str(self.path)

    def fault(self, key: str, reason: str) -> UsageError:
        return UsageError(f"{self.who}: {key}: {reason}")

    def check_keys(self, *known: str) -> None:
        for key in self.data:
            check_key(key, known, self.who)

    def text(self, key: str) -> str | None:
        value = self.data.get(key)
        if value is not None and (not isinstance(value, str) or not value):
            raise self.fault(key, "expected a string")
        return value

    def table(self, key: str) -> _Table | None:
        value = self.data.get(key)
        if value is not None and not isinstance(value, dict):
            raise self.fault(key, "expected a table")
        return None if value is None else _Table(self.path, f"{self._prefix}{key}", value)

    def tables(self, key: str) -> dict[str, _Table]:
        value = self.data.get(key, {})
        if not isinstance(value, dict):
            raise self.fault(key, "expected a table")
        found: dict[str, _Table] = {}
        for name, contents in value.items():
            table = _Table(self.path, f"{self._prefix}{key}.{_shown(name)}", contents)
            if not isinstance(contents, dict):
                raise UsageError(f"{table.who}: expected a table")
            found[name] = table
        return found


def _shown(name: str) -> str:
    """A key as it stands in a table's header."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]{1,80}", name) else quoted(name)


def _context(name: str, table: _Table) -> Context:
    table.check_keys("index", "api-key-file", "model", "pods", "kubernetes")
    if table.data.get("pods") and "kubernetes" in table.data:
        raise UsageError(
            f"{table.who}: it lists pods and names kubernetes",
            remedy="a context has one of them: make two contexts",
        )
    model = table.text("model")
    return Context(
        name,
        tuple(_pod(pod, contents, model) for pod, contents in table.tables("pods").items()),
        table.text("index"),
        _key_file(table),
        model,
        _kubernetes(table),
    )


def _kubernetes(context: _Table) -> KubernetesContext | None:
    table = context.table("kubernetes")
    if table is None:
        return None
    table.check_keys(*KUBERNETES_KEYS)
    try:
        return read_kubernetes(table.data, table.path.parent)
    except ValueError as error:
        raise UsageError(f"{table.who}: {error}") from None


def _key_file(table: _Table) -> Path | None:
    told = table.text("api-key-file")
    try:
        return table.path.parent / Path(told).expanduser() if told else None
    except RuntimeError:
        raise table.fault("api-key-file", "there is no such user") from None


def _pod(name: str, table: _Table, model: str | None) -> Pod:
    table.check_keys(*POD_KEYS)
    fields = {key: _field(table, key, value) for key, value in table.data.items()}
    try:
        return build_pod(name, fields, model=model)
    except UsageError as error:
        raise UsageError(f"{table.who}: {error.message}", remedy=error.remedy) from None


def _field(table: _Table, key: str, value: Any) -> str:
    """A value as a `--pod` would spell it: numbers, booleans and lists have TOML's own form."""
    if isinstance(value, str) and value:
        return value
    if key == "bind" and isinstance(value, bool):
        return str(value).lower()
    if key == "dp" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if key in _LISTS and isinstance(value, list) and value:
        if all(isinstance(item, str) and "|" not in item for item in value):
            return "|".join(value)
        raise table.fault(key, "expected a list of endpoints")
    expected = {"dp": "a whole number", "bind": "true or false"}.get(key, "a string")
    raise table.fault(key, f"expected {expected}")
