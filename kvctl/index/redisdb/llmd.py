"""llm-d's index in Redis or Valkey: read, matched, purged, and fed.

Keys and fields are those of llm-d-kv-cache in mid 2026 (kvblock/redis.go). Anything else in the
database is left alone. No rank and no time is stored: a purge takes all that a pod has.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping

import redis

from kvctl.events import Position, Record
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
from kvctl.index.redisdb.enginenames import EngineNames
from kvctl.index.redisdb.feed import LlmdFeed
from kvctl.index.redisdb.own import OwnKeys
from kvctl.index.redisdb.podfields import ENGINE_KEY, KEY, PodField, parse_field
from kvctl.index.redisdb.requestkeys import model_key, multimodal_extra, request_keys

# A mapping whose blocks nobody holds any more. Read and removed in one step: llm-d may be adding.
_PRUNE = """
for _, block in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    if redis.call('EXISTS', block) == 1 then return 0 end
end
return redis.call('DEL', KEYS[1])
"""
_BLOCKS = "[0-9]*"
_ENGINES = "engine:*"
_RETRY_S = 0.5
_WRITE_RETRIES = 12  # about 20 s in all


class LlmdIndex:
    """The index that llm-d's scorers share.

    ``names`` gives pods their names by what llm-d calls them, an address mostly. ``own_keys``
    allows keys of kvctl's own beside llm-d's (`kvctl:…`): where a stopped tail goes on, and what
    reconcile remembers. ``patience`` is how many seconds a purge waits for a server that is gone.
    Raises `IndexStoreError`.
    """

    traits = Traits(ranks=False, contents=False, times=False, pod_names=False)

    def __init__(
        self,
        where: RedisUrl,
        *,
        names: Mapping[str, str] | None = None,
        models: Mapping[str, str] | None = None,
        own_keys: bool = False,
        patience: float = 30.0,
        progress: Progress | None = None,
    ) -> None:
        self._where = where
        self._names = dict(names or {})
        self._patience = patience
        self._progress = progress
        self._db = connect(where)
        self._writer = connect(where, retries=_WRITE_RETRIES)
        self._own = OwnKeys(self._writer, where.shown) if own_keys else None
        self._feed = LlmdFeed(
            self._writer, where, self._own, dict(models or {}), self._names, self._purge_pod
        )
        self._odd = 0

    def __enter__(self) -> LlmdIndex:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            self._let_go()

    # -- reading --------------------------------------------------------------------------------

    def summary(self) -> IndexSummary:
        """Counts per pod; a table that the server is resizing may show a block twice."""
        blocks = 0
        media: dict[str, Counter[str]] = {}
        with guard(self._where.shown):
            for held in self._blocks():
                blocks += len(held)
                for fields in held.values():
                    for field in fields:
                        media.setdefault(self._name(field.pod), Counter())[_medium(field)] += 1
        streams = tuple(
            StreamSummary(pod, None, "", sum(of.values()), 0, dict(of), {}, None)
            for pod, of in sorted(media.items())
        )
        return IndexSummary(blocks, streams)

    def entries(self, pod: str | None = None) -> Iterator[Entry]:
        """Every entry, of one pod or of all, in the server's own order."""
        with guard(self._where.shown), EngineNames() as engine_names:
            self._read_engine_names(engine_names)
            for held in self._blocks():
                hashes = engine_names.of(list(held))
                for key, fields in held.items():
                    first, *others = hashes.get(key, [None])
                    for field in fields:
                        name = self._name(field.pod)
                        if pod is None or name == pod:
                            yield Entry(
                                name,
                                None,
                                "",
                                None,
                                _medium(field),
                                field.group or 0,
                                first,
                                None,
                                True,
                                None,
                                None,
                                1,
                                field.speculative,
                                tuple(each for each in others if each is not None),
                            )

    def match(self, prompt: Prompt) -> dict[str, PodMatch]:
        """Per pod that holds its first block, how many leading blocks of the prompt it holds."""
        if prompt.model is None and prompt.lora is None:
            raise IndexStoreError(
                f"{self._where.shown}: llm-d's keys are made with the model's name",
                remedy="say --model",
            )
        size = self._where.block_size
        parent = model_key(self._where.seed, prompt.lora or prompt.model or "")
        extra = multimodal_extra(prompt.first_extra_keys)
        count = len(prompt.token_ids) // size
        extras = [extra] + [None] * (count - 1) if extra and count else None
        keys = request_keys(parent, prompt.token_ids, size, extras)
        with guard(self._where.shown):
            held = self._fields([str(key).encode() for key in keys])
        anywhere: dict[str, int] = {}
        in_gpu: dict[str, int] = {}
        for number, key in enumerate(keys):
            for field in held.get(str(key), []):
                pod = self._name(field.pod)
                if anywhere.get(pod, 0) >= number:
                    anywhere[pod] = number + 1
                if _medium(field) == GPU and in_gpu.get(pod, 0) >= number:
                    in_gpu[pod] = number + 1
        return {
            pod: PodMatch(pod, None, len(keys), in_gpu.get(pod, 0), blocks, size)
            for pod, blocks in sorted(anywhere.items())
        }

    def facts(self) -> list[StreamFacts]:
        """How many entries each pod has; nothing else is kept there."""
        return [StreamFacts(each.pod, None, each.entries) for each in self.summary().streams]

    def stored_before(self, pod: str, rank: int | None, cutoff: float | None) -> int:
        """How many entries a pod has. No rank and no time can be asked for."""
        self._refuse(rank, cutoff)
        return next((each.entries for each in self.facts() if each.pod == pod), 0)

    # -- purging --------------------------------------------------------------------------------

    def purge(self, pod: str, rank: int | None = None, *, before: float | None = None) -> int:
        """Remove all that a pod has, then the engine hashes that lead nowhere any more.

        A server that goes away meanwhile is waited for. Doing it again finishes what was begun.
        """
        self._refuse(rank, before)
        with guard(self._where.shown):
            self._feed.commit()
        return self._purge_pod(pod)

    def _purge_pod(self, pod: str) -> int:
        removed = 0
        deadline: float | None = None
        while True:
            try:
                for count in self._remove(pod):
                    removed += count
                    deadline = None
                for _count in self._prune():
                    deadline = None
                return removed
            except redis.AuthenticationError:
                with guard(self._where.shown):
                    raise
            except (redis.ConnectionError, redis.TimeoutError) as error:
                now = time.monotonic()
                deadline = now + self._patience if deadline is None else deadline
                if now >= deadline:
                    raise IndexStoreError(
                        f"{self._where.shown} went away after {removed:,} entries of {pod} were "
                        f"purged: {error}",
                        remedy="run it again: it goes on where it stopped",
                    ) from None
                time.sleep(_RETRY_S)
            except redis.RedisError:
                with guard(self._where.shown):
                    raise

    def _remove(self, pod: str) -> Iterator[int]:
        """Remove the pod's fields, batch by batch. The server drops a hash that is left empty."""
        for keys in scan(self._db, _BLOCKS, "hash", self._progress):
            pipe = self._db.pipeline(transaction=False)
            for key, found in self._raw(keys):
                doomed = [name for name, field in found if field and self._name(field.pod) == pod]
                if doomed:
                    pipe.hdel(key, *doomed)
            if len(pipe):
                yield sum(pipe.execute())

    def _prune(self) -> Iterator[int]:
        for keys in scan(self._db, _ENGINES, "zset"):
            pipe = self._db.pipeline(transaction=False)
            mapped = self._mappings(keys)
            for _key, members in mapped:
                pipe.exists(*members)
            for (key, _members), living in zip(mapped, pipe.execute(), strict=True):
                if not living:
                    pipe.eval(_PRUNE, 1, key)
            yield sum(pipe.execute())

    def _refuse(self, rank: int | None, cutoff: float | None) -> None:
        if rank is not None or cutoff is not None:
            raise IndexStoreError(
                f"{self._where.shown} tells neither ranks nor times: only all of a pod can be meant"
            )

    # -- feeding --------------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        """Take one record in, as llm-d does."""
        with guard(self._where.shown):
            self._feed.apply(record)

    def begin_again(self, pod: str, rank: int) -> None:
        """Remove all that the pod has, and its position."""
        self._purge_pod(pod)
        with guard(self._where.shown):
            self._feed.forget(pod, rank)

    def commit(self) -> None:
        """Send what is not sent yet, with the positions."""
        with guard(self._where.shown):
            self._feed.commit()

    def positions(self) -> dict[tuple[str, int], Position]:
        """Where each stream was left, if keys of kvctl's own are allowed; else none."""
        if self._own is None:
            return {}
        with guard(self._where.shown):
            return self._own.positions()

    def remarks(self) -> list[str]:
        """What was not taken in, or not looked at, and why."""
        told = self._feed.remarks()
        if self._odd:
            told.append(f"{self._odd:,} fields have not the form of llm-d's: they were left alone")
        return told

    def close(self) -> None:
        """Send what is not sent yet, and let go."""
        try:
            self.commit()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self._writer.close()
        self._db.close()

    def recall(self, name: str) -> str | None:
        """What was remembered under that name, if keys of kvctl's own are allowed."""
        with guard(self._where.shown):
            return None if self._own is None else self._own.recall(name)

    def remember(self, name: str, value: str) -> None:
        """Keep a text under a name, if keys of kvctl's own are allowed."""
        with guard(self._where.shown):
            if self._own is not None:
                self._own.remember(name, value)

    # -- the layout -----------------------------------------------------------------------------

    def _name(self, identifier: str) -> str:
        return self._names.get(identifier, identifier)

    def _blocks(self) -> Iterator[dict[str, list[PodField]]]:
        """Batches of request keys with the claims to them."""
        for keys in scan(self._db, _BLOCKS, "hash", self._progress):
            yield self._fields(keys)

    def _fields(self, keys: list[bytes]) -> dict[str, list[PodField]]:
        held = {
            key.decode(): [field for _name, field in found if field is not None]
            for key, found in self._raw(keys)
        }
        return {key: fields for key, fields in held.items() if fields}

    def _raw(self, keys: list[bytes]) -> list[tuple[bytes, list[tuple[bytes, PodField | None]]]]:
        """The hashes of request keys, each field as it stands and as a claim."""
        pipe = self._db.pipeline(transaction=False)
        wanted = [key for key in dict.fromkeys(keys) if KEY.match(key)]
        for key in wanted:
            pipe.hgetall(key)
        found = []
        for key, answer in zip(wanted, pipe.execute(raise_on_error=False), strict=True):
            if isinstance(answer, redis.ResponseError):
                continue  # no hash, or not any more
            if isinstance(answer, Exception):
                raise answer
            fields = [(name, parse_field(name, value)) for name, value in answer.items()]
            self._odd += sum(field is None for _name, field in fields)
            found.append((key, fields))
        return found

    def _mappings(self, keys: list[bytes]) -> list[tuple[bytes, list[bytes]]]:
        """The engine keys among ``keys`` with the request keys they stand for."""
        pipe = self._db.pipeline(transaction=False)
        wanted = [key for key in dict.fromkeys(keys) if ENGINE_KEY.match(key)]
        for key in wanted:
            pipe.zrange(key, 0, -1)
        mappings = []
        for key, members in zip(wanted, pipe.execute(raise_on_error=False), strict=True):
            if isinstance(members, redis.ResponseError):
                continue
            if isinstance(members, Exception):
                raise members
            if members and all(KEY.match(member) for member in members):
                mappings.append((key, members))
        return mappings

    def _read_engine_names(self, engine_names: EngineNames) -> None:
        for keys in scan(self._db, _ENGINES, "zset"):
            engine_names.add(
                (member.decode(), key.removeprefix(b"engine:").decode())
                for key, members in self._mappings(keys)
                for member in members
            )


def _medium(field: PodField) -> str:
    return field.tier.upper()
