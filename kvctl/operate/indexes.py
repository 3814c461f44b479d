"""Opens an index by its URL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from kvctl.capture import open_capture
from kvctl.errors import UsageError
from kvctl.index import IndexStore, IndexView, MemoryIndex, Removals, SqliteIndex
from kvctl.stream import order_capture

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):")
_KNOWN = "sqlite:FILE or a path, or capture:FILE to read one on the fly"


def default_index() -> Path:
    """The index where none is named: `index.sqlite` in the user's state directory."""
    return Path(platformdirs.user_state_dir("kvctl")) / "index.sqlite"


def index_path(url: str | None) -> Path:
    """The file of `sqlite:FILE` or of a path, the default for None.

    Raises `UsageError` for any other URL.
    """
    if not url:
        return default_index()
    scheme = _SCHEME.match(url)
    if scheme is not None and scheme[1] != "sqlite":
        raise UsageError(
            f"--index {url!r} cannot be opened to write", remedy="sqlite:FILE or a path"
        )
    return Path(url.removeprefix("sqlite:")).expanduser()


@contextmanager
def open_store(
    url: str | None,
    *,
    removals: Removals = Removals.COUNT,
    models: Mapping[str, str] | None = None,
) -> Iterator[IndexStore]:
    """An index to write, made if it is not there; committed at the end unless that is an error."""
    path = index_path(url)
    if not url:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with SqliteIndex(path, removals=removals, models=models) as store:
        yield store


@contextmanager
def open_view(url: str | None) -> Iterator[IndexView]:
    """An index to look into. `capture:FILE` (or `capture:demo:NAME`) is replayed on the fly."""
    if url and url.startswith("capture:"):
        index = MemoryIndex()
        with open_capture(url.removeprefix("capture:")) as reader:
            for record in order_capture(reader):
                index.apply(record)
        yield index
        return
    if url and (scheme := _SCHEME.match(url)) and scheme[1] != "sqlite":
        raise UsageError(f"no index {url!r} can be opened", remedy=_KNOWN)
    with SqliteIndex(index_path(url), read_only=True) as store:
        yield store
