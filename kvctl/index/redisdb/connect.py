"""The connection to a Redis or Valkey server: its URL, its errors in plain words, its key space."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit

import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from kvctl.errors import UsageError
from kvctl.index.errors import IndexStoreError

Layout: TypeAlias = Literal["llm-d", "kthena"]
Progress: TypeAlias = Callable[[int, int], None]
"""Hears how many keys were looked at, and about how many there are."""

SCHEMES = {
    "redis": "redis",
    "rediss": "rediss",
    "valkey": "redis",
    "valkeys": "rediss",
    "unix": "unix",
}
PASSWORD_VARIABLE = "KVCTL_REDIS_PASSWORD"

_log = logging.getLogger(__name__)
_OURS = ("layout", "seed", "block_size", "hash")
_SCAN_COUNT = 1000
_CONNECT_S = 5.0
_ANSWER_S = 30.0


@dataclass(frozen=True)
class RedisUrl:
    """A server's URL, and what kvctl must know of the layout in it.

    ``seed`` and ``block_size`` are those of llm-d's token processor, which names blocks by them.
    ``shown`` is the URL without its password.
    """

    url: str = field(repr=False)
    shown: str
    layout: Layout
    seed: str
    block_size: int


def parse_url(url: str) -> RedisUrl:
    """`redis://`, `rediss://`, `valkey://`, `valkeys://` or `unix://`, with `?layout=` and others.

    Raises `UsageError`.
    """
    parts = urlsplit(url)
    rest = f"{parts.path}?{parts.query}" if parts.query else parts.path
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{rest}"
    if parts.scheme not in SCHEMES:
        raise UsageError(f"{shown!r} is no URL of Redis or Valkey", remedy="redis://HOST:PORT/DB")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    ours = {name: value for name, value in pairs if name in _OURS}
    theirs = urlencode([(name, value) for name, value in pairs if name not in _OURS])
    layout = ours.get("layout", "llm-d")
    if layout not in ("llm-d", "kthena"):
        raise UsageError(f"layout={layout} in {shown!r}", remedy="layout=llm-d or layout=kthena")
    if ours.get("hash", "fnv64a") != "fnv64a":
        raise UsageError(
            f"hash={ours['hash']} in {shown!r}: kvctl writes and matches fnv64a keys only",
            remedy="under sha256_cbor llm-d itself cannot continue a chain from its last 64 bits",
        )
    try:
        block_size = int(ours.get("block_size", "16"))
    except ValueError:
        block_size = 0
    if block_size <= 0:
        raise UsageError(f"block_size={ours['block_size']} in {shown!r} is no number of tokens")
    server = f"{SCHEMES[parts.scheme]}://{parts.netloc}{parts.path}"
    if theirs:
        server += f"?{theirs}"
    return RedisUrl(server, shown, layout, ours.get("seed", ""), block_size)  # type: ignore[arg-type]


def connect(where: RedisUrl, *, retries: int = 0) -> redis.Redis:
    """A client whose server has answered. The password may stand in `KVCTL_REDIS_PASSWORD`.

    With ``retries`` a command is sent again when the connection breaks. That must not be done
    while scanning: a server that was restarted takes the old cursor and leaves keys out.
    Raises `IndexStoreError`.
    """
    options: dict[str, Any] = {}
    password = os.environ.get(PASSWORD_VARIABLE)
    if password and urlsplit(where.url).password is None:
        options["password"] = password
    with guard(where.shown):
        kind = _ToldRedis if _log.isEnabledFor(logging.DEBUG) else redis.Redis
        client: redis.Redis = kind.from_url(
            where.url,
            socket_connect_timeout=_CONNECT_S,
            socket_timeout=_ANSWER_S,
            retry=Retry(ExponentialBackoff(cap=2.0, base=0.05), retries),
            **options,
        )
        try:
            client.ping()
        except BaseException:
            client.close()
            raise
    return client


class _ToldRedis(redis.Redis):
    """A client that logs which commands it sent, when it is closed."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._sent: Counter[str] = Counter()
        sent, pool = self._sent, self.connection_pool

        class Told(pool.connection_class):  # type: ignore[name-defined, misc]
            """A connection that counts what goes over it, piped or not."""

            def send_command(self, *args: Any, **options: Any) -> None:
                sent[str(args[0]).upper()] += 1
                super().send_command(*args, **options)

            def pack_commands(self, commands: Any) -> Any:
                commands = list(commands)
                sent.update(str(each[0]).upper() for each in commands)
                return super().pack_commands(commands)

        pool.connection_class = Told

    def close(self) -> None:
        """Close the connections."""
        super().close()
        if self._sent:
            where = self.connection_pool.connection_kwargs
            place = where.get("path") or f"{where.get('host')}:{where.get('port')}"
            told = ", ".join(f"{count} {name}" for name, count in self._sent.most_common())
            _log.debug("Redis %s: %d commands: %s", place, self._sent.total(), told)
            self._sent.clear()


@contextmanager
def guard(shown: str) -> Iterator[None]:
    """What redis-py raises, as `IndexStoreError` with a remedy."""
    try:
        yield
    except redis.AuthenticationError as error:
        raise IndexStoreError(
            f"{shown}: {error}",
            remedy=f"give the password in the URL or in {PASSWORD_VARIABLE}",
        ) from None
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise IndexStoreError(
            f"{shown} does not answer: {error}", remedy="is the server up, and this its port?"
        ) from None
    except redis.exceptions.ReadOnlyError:
        raise IndexStoreError(
            f"{shown} is a replica that takes no writes", remedy="give the primary's URL"
        ) from None
    except redis.exceptions.NoPermissionError as error:
        raise IndexStoreError(
            f"{shown}: {error}", remedy="the user needs SCAN, HGETALL, HDEL, ZRANGE and EVAL"
        ) from None
    except redis.RedisError as error:
        raise IndexStoreError(f"{shown}: {error}") from None
    except ValueError as error:
        raise UsageError(f"{shown!r}: {error}") from None


def scan(
    client: redis.Redis,
    pattern: str,
    kind: Literal["hash", "zset"],
    progress: Progress | None = None,
) -> Iterator[list[bytes]]:
    """The keys of a kind under a pattern, batch by batch. A key may come twice."""
    total = client.dbsize()
    cursor, looked_at = 0, 0
    while True:
        cursor, keys = client.scan(cursor, match=pattern, count=_SCAN_COUNT, _type=kind.upper())
        looked_at = min(looked_at + _SCAN_COUNT, total)
        if progress is not None:
            progress(total if not cursor else looked_at, total)
        if keys:
            yield [key for key in keys if isinstance(key, bytes)]
        if not cursor:
            return
