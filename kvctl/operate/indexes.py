"""Opens an index by its URL."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import platformdirs

from kvctl.capture import open_capture
from kvctl.errors import UsageError
from kvctl.fleet import Pod
from kvctl.index import (
    IndexStore,
    IndexStoreError,
    IndexView,
    MemoryIndex,
    PurgeableIndex,
    Removals,
    SqliteIndex,
)
from kvctl.operate.podnames import pod_names
from kvctl.stream import order_capture

if TYPE_CHECKING:
    from kvctl.index.redisdb import LlmdIndex

Kind: TypeAlias = Literal["sqlite", "capture", "redis", "dynamo"]
Progress: TypeAlias = Callable[[int, int], None]
"""Hears of long work: how much is done, of how much."""

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):")
_REDIS = ("redis", "rediss", "valkey", "valkeys", "unix")
_DYNAMO = ("dynamo+http", "dynamo+https")
_KNOWN = (
    "sqlite:FILE or a path, capture:FILE, redis://HOST:PORT/DB, dynamo+http://HOST:PORT "
    "(kvctl index --help)"
)


@dataclass(frozen=True)
class IndexOptions:
    """What goes with an index's URL. ``pods`` are those that may be in it: routers know them by
    their addresses. ``own_keys`` allows keys of kvctl's own in a router's database."""

    pods: Sequence[Pod] = ()
    own_keys: bool = False
    progress: Progress | None = None
    removals: Removals = Removals.COUNT
    models: Mapping[str, str] = field(default_factory=dict)


def default_index() -> Path:
    """The index where none is named: `index.sqlite` in the user's state directory."""
    return Path(platformdirs.user_state_dir("kvctl")) / "index.sqlite"


def kind_of(url: str | None) -> Kind:
    """Where the index lives. Raises `UsageError` for a scheme that nobody knows."""
    scheme = _SCHEME.match(url or "")
    if scheme is None or scheme[1] == "sqlite":
        return "sqlite"
    if scheme[1] == "capture":
        return "capture"
    if scheme[1] in _REDIS:
        return "redis"
    if scheme[1] in _DYNAMO:
        return "dynamo"
    raise UsageError(f"no index {url!r} can be opened", remedy=_KNOWN)


def shown_url(url: str | None) -> str:
    """The index as it may be printed: without a password, the default by its path."""
    if kind_of(url) in ("sqlite", "capture"):
        return url or str(default_index())
    return re.sub(r"//[^/@]*@", "//", url or "")


def index_path(url: str | None) -> Path:
    """The file of `sqlite:FILE` or of a path, the default for None."""
    return Path(url.removeprefix("sqlite:")).expanduser() if url else default_index()


@contextmanager
def open_store(url: str | None, options: IndexOptions | None = None) -> Iterator[IndexStore]:
    """An index to feed, made if it is not there; committed at the end unless that is an error."""
    options = options or IndexOptions()
    kind = kind_of(url)
    if kind == "capture":
        raise UsageError(f"{url} is read only", remedy="tail --capture FILE writes one")
    if kind == "dynamo":
        raise UsageError(
            f"{shown_url(url)} takes no entries: it listens to the engines itself",
            remedy="kvctl replay --publish sends it a capture's batches",
        )
    if kind == "redis":
        with _open_llmd(url or "", options) as llmd:
            yield llmd
        return
    path = index_path(url)
    if not url:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with SqliteIndex(path, removals=options.removals, models=options.models) as store:
        yield store


@contextmanager
def open_purgeable(
    url: str | None, options: IndexOptions | None = None
) -> Iterator[PurgeableIndex]:
    """An index that is there already, to judge and to purge."""
    options = options or IndexOptions()
    kind = kind_of(url)
    if kind == "capture":
        raise UsageError(f"{url} cannot be purged", remedy="kvctl replay --save makes an index")
    if kind == "redis":
        with _open_redis(url or "", options) as router:
            yield router
        return
    if kind == "dynamo":
        with _open_dynamo(url or "", options) as dynamo:
            yield dynamo
        return
    path = index_path(url)
    if not path.exists():
        raise IndexStoreError(f"there is no index {path}", remedy="kvctl tail --index")
    with SqliteIndex(path) as store:
        yield store


@contextmanager
def open_view(url: str | None, options: IndexOptions | None = None) -> Iterator[IndexView]:
    """An index to look into. `capture:FILE` (or `capture:demo:NAME`) is replayed on the fly."""
    kind = kind_of(url)
    if kind == "capture":
        index = MemoryIndex()
        with open_capture((url or "").removeprefix("capture:")) as reader:
            for record in order_capture(reader):
                index.apply(record)
        yield index
    elif kind == "sqlite":
        with SqliteIndex(index_path(url), read_only=True) as store:
            yield store
    else:
        with open_purgeable(url, options) as view:
            yield view


@contextmanager
def _open_redis(url: str, options: IndexOptions) -> Iterator[PurgeableIndex]:
    from kvctl.index.redisdb import KthenaIndex, parse_url

    where = parse_url(url)
    if where.layout == "llm-d":
        with _open_llmd(url, options) as llmd:
            yield llmd
        return
    with KthenaIndex(where, names=pod_names(options.pods), progress=options.progress) as kthena:
        yield kthena


@contextmanager
def _open_llmd(url: str, options: IndexOptions) -> Iterator[LlmdIndex]:
    from kvctl.index.redisdb import LlmdIndex, parse_url

    where = parse_url(url)
    if where.layout != "llm-d":
        raise UsageError(
            f"{where.shown}: kthena's layout is read and purged, not written",
            remedy="its blocks bear hashes of kthena's own",
        )
    with LlmdIndex(
        where,
        names=pod_names(options.pods),
        models=options.models,
        own_keys=options.own_keys,
        progress=options.progress,
    ) as llmd:
        yield llmd


@contextmanager
def _open_dynamo(url: str, options: IndexOptions) -> Iterator[PurgeableIndex]:
    from kvctl.index.dynamo import DynamoIndex

    replays = {
        stream.events: stream.replay
        for pod in options.pods
        for stream in pod.streams
        if stream.replay is not None
    }
    with DynamoIndex(url, names=pod_names(options.pods), replays=replays) as index:
        yield index
