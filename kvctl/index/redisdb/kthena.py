"""kthena's index in Redis: read and purged.

A key `matrix:kv:block:<model>@<hash>` is a hash of pod -> time of the claim, by the router's clock.
The block's hash is kthena's own: no prompt can be matched by it, and no engine calls it so.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping

import redis

from kvctl.index.errors import IndexStoreError
from kvctl.index.model import (
    GPU,
    Entry,
    IndexSummary,
    PodMatch,
    Prompt,
    StreamFacts,
    StreamSummary,
    Traits,
)
from kvctl.index.redisdb.connect import Progress, RedisUrl, connect, guard, scan

_PREFIX = b"matrix:kv:block:"


class KthenaIndex:
    """The index of a kthena router. ``names`` gives pods their names by what kthena calls them.

    Raises `IndexStoreError`.
    """

    traits = Traits(
        ranks=False,
        contents=False,
        groups=False,
        times=False,
        engine_hashes=False,
        pod_names=False,
    )

    def __init__(
        self,
        where: RedisUrl,
        *,
        names: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._where = where
        self._names = dict(names or {})
        self._progress = progress
        self._db = connect(where)

    def __enter__(self) -> KthenaIndex:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def summary(self) -> IndexSummary:
        """Counts per pod and model; a table that the server is resizing may show a block twice."""
        blocks: set[tuple[str, str]] = set()
        counts: Counter[tuple[str, str]] = Counter()
        for entry, block in self._entries():
            blocks.add((entry.model, block))
            counts[entry.pod, entry.model] += 1
        streams = tuple(
            StreamSummary(pod, None, model, count, 0, {GPU: count}, {}, None)
            for (pod, model), count in sorted(counts.items())
        )
        return IndexSummary(len(blocks), streams)

    def entries(self, pod: str | None = None) -> Iterator[Entry]:
        """Every entry, of one pod or of all, in the server's own order."""
        for entry, _block in self._entries():
            if pod is None or entry.pod == pod:
                yield entry

    def match(self, prompt: Prompt) -> dict[str, PodMatch]:
        """Not to be told."""
        raise IndexStoreError(
            f"{self._where.shown}: kthena hashes blocks in a way of its own: a prompt of "
            f"{len(prompt.token_ids)} tokens cannot be matched",
            remedy="match against an index of kvctl's: kvctl tail --index",
        )

    def facts(self) -> list[StreamFacts]:
        """How many entries each pod has. The router's clock says nothing about an engine's."""
        counts: Counter[str] = Counter()
        for entry, _block in self._entries():
            counts[entry.pod] += 1
        return [StreamFacts(pod, None, count) for pod, count in sorted(counts.items())]

    def stored_before(self, pod: str, rank: int | None, cutoff: float | None) -> int:
        """How many entries a pod has. No rank and no time can be asked for."""
        self._refuse(rank, cutoff)
        return sum(1 for _entry in self.entries(pod))

    def purge(self, pod: str, rank: int | None = None, *, before: float | None = None) -> int:
        """Remove all that a pod has; doing it again finishes what was begun."""
        self._refuse(rank, before)
        removed = 0
        with guard(self._where.shown):
            for keys in self._scan():
                pipe = self._db.pipeline(transaction=False)
                for key, claims in self._claims(keys):
                    doomed = [name for name, _at in claims if self._name(name) == pod]
                    if doomed:
                        pipe.hdel(key, *doomed)
                removed += sum(pipe.execute())
        return removed

    def remarks(self) -> list[str]:
        """Nothing to remark."""
        return []

    def close(self) -> None:
        """Let go."""
        self._db.close()

    def _refuse(self, rank: int | None, cutoff: float | None) -> None:
        if rank is not None or cutoff is not None:
            raise IndexStoreError(
                f"{self._where.shown} tells neither ranks nor engine times: only all of a pod "
                "can be meant"
            )

    def _name(self, identifier: bytes) -> str:
        text = identifier.decode(errors="replace")
        return self._names.get(text, text)

    def _entries(self) -> Iterator[tuple[Entry, str]]:
        with guard(self._where.shown):
            for keys in self._scan():
                for key, claims in self._claims(keys):
                    rest = key.removeprefix(_PREFIX).decode(errors="replace")
                    model, _, block = rest.rpartition("@")
                    name = block.encode()
                    for pod, at in claims:
                        yield (
                            Entry(
                                self._name(pod),
                                None,
                                model,
                                None,
                                GPU,
                                0,
                                int(block) if block.isdecimal() else name,
                                None,
                                True,
                                at,
                                at,
                                1,
                            ),
                            block,
                        )

    def _scan(self) -> Iterator[list[bytes]]:
        return scan(self._db, f"{_PREFIX.decode()}*@*", "hash", self._progress)

    def _claims(self, keys: list[bytes]) -> list[tuple[bytes, list[tuple[bytes, float]]]]:
        """The hashes of blocks: pods with times. Fields without a time are not kthena's."""
        pipe = self._db.pipeline(transaction=False)
        wanted = list(dict.fromkeys(keys))
        for key in wanted:
            pipe.hgetall(key)
        found = []
        for key, answer in zip(wanted, pipe.execute(raise_on_error=False), strict=True):
            if isinstance(answer, redis.ResponseError):
                continue
            if isinstance(answer, Exception):
                raise answer
            claims = [(pod, _time(value)) for pod, value in answer.items()]
            found.append((key, [(pod, at) for pod, at in claims if at is not None]))
        return found


def _time(value: bytes) -> float | None:
    """A claim's time, seconds; Go programs write seconds, or smaller units of them."""
    try:
        at = float(value)
    except ValueError:
        return None
    if not math.isfinite(at):
        return None
    for unit in (1e18, 1e15, 1e12):  # nano-, micro-, milliseconds since 1970
        if at >= unit:
            return at / (unit / 1e9)
    return at
