"""Feeds llm-d's index in Redis from KV events, as llm-d itself does (kvevents/pool.go).

What llm-d would file under a wrong key is refused, and counted by reason: a block whose parent was
never seen (llm-d takes it for the beginning of a prompt), blocks without tokens, other block sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import redis

from kvctl.events import (
    AllBlocksCleared,
    Batch,
    BlockRemoved,
    BlockStored,
    Position,
    Record,
    Restart,
    Undecodable,
    WireBatch,
    low_64,
    position_of,
)
from kvctl.index.redisdb.connect import RedisUrl
from kvctl.index.redisdb.own import OwnKeys
from kvctl.index.redisdb.podfields import PodField
from kvctl.index.redisdb.requestkeys import model_key, multimodal_extra, request_keys
from kvctl.index.spans import model_of
from kvctl.text import plural

_SEND = 1000
"""So many commands go in one transaction at most."""
_REMEMBER = 500_000
"""So many mappings are kept at hand; the others are asked for."""

# The blocks of an engine hash lose a pod; the mapping goes with its last block (kvblock/redis.go).
_EVICT = """
for _, block in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    redis.call('HDEL', block, ARGV[1])
end
for _, block in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    if redis.call('EXISTS', block) == 1 then return 0 end
end
return redis.call('DEL', KEYS[1])
"""


class LlmdFeed:
    """Events in, commands out.

    ``purge`` removes all that a pod has. ``names`` learns from the topics what llm-d calls a pod.
    """

    def __init__(
        self,
        db: redis.Redis,
        where: RedisUrl,
        own: OwnKeys | None,
        models: Mapping[str, str],
        names: dict[str, str],
        purge: Callable[[str], int],
    ) -> None:
        self._db = db
        self._where = where
        self._own = own
        self._models = models
        self._names = names
        self._purge = purge
        self._pipe = db.pipeline(transaction=True)
        self._mapped: dict[int, int] = {}
        self._roots: dict[str, int] = {}
        self._moved: dict[tuple[str, int], Position | None] = {}
        self._refused: Counter[str] = Counter()

    def apply(self, record: Record) -> None:
        """Take one record in; sent once there is enough of it."""
        if isinstance(record, (Batch, Undecodable)):
            wire = record.wire
            if isinstance(record, Batch):
                pod, model = self._told_by(wire)
                for event in record.events.events:
                    if isinstance(event, BlockStored):
                        self._store(pod, model, event)
                    elif isinstance(event, BlockRemoved):
                        self._remove(pod, event)
                    elif isinstance(event, AllBlocksCleared):
                        self._clear(wire.pod)
            self._moved[wire.pod, wire.rank] = position_of(record)
        elif isinstance(record, Restart):
            self._clear(record.pod)
            self._moved[record.pod, record.rank] = None
        if len(self._pipe) >= _SEND:
            self.commit()

    def forget(self, pod: str, rank: int) -> None:
        """Drop a stream's position, and every mapping that its purge may have removed."""
        self._mapped.clear()
        self._moved[pod, rank] = None

    def commit(self) -> None:
        """Send everything, with the positions in the same transaction."""
        if self._own is not None:
            self._own.write_positions(self._pipe, self._moved)
        self._moved.clear()
        if not len(self._pipe):
            return
        for answer in self._pipe.execute(raise_on_error=False):
            if isinstance(answer, redis.ResponseError) and "WRONGTYPE" in str(answer):
                self._refused["the key of a block is somebody else's, of another type"] += 1
            elif isinstance(answer, Exception):
                raise answer

    def remarks(self) -> list[str]:
        """What was refused, and why."""
        return [
            f"{plural(count, 'block')} not written: {why}" for why, count in self._refused.items()
        ]

    def _store(self, pod: str, model: str, event: BlockStored) -> None:
        size, count = self._where.block_size, len(event.block_hashes)
        name = event.lora_name or model
        if not name:
            return self._refuse(event, "no model is known for its key (give model= to --pod)")
        if not event.token_ids:
            return self._refuse(event, "its event tells no tokens")
        if event.block_size % size:
            why = f"blocks of {event.block_size} tokens cannot be cut into llm-d's of {size}"
            return self._refuse(event, f"{why} (block_size= in the URL)")
        if len(event.token_ids) != count * event.block_size:
            return self._refuse(event, "its event names a part of its blocks only")
        parent = self._parent(name, event)
        if parent is None:
            return self._refuse(event, "its parent was never seen")
        each = event.block_size // size
        extras = None
        if event.extra_keys:
            told = [multimodal_extra(keys) for keys in event.extra_keys]
            if any(told):
                if each != 1 or len(told) != count:
                    return self._refuse(event, "multimodal blocks of another size than llm-d's")
                extras = told
        keys = request_keys(parent, event.token_ids, size, extras)
        field = PodField(pod, (event.medium or "gpu").lower(), group=event.group_idx).encode()
        for number, block_hash in enumerate(event.block_hashes):
            engine, own = low_64(block_hash), keys[number * each : (number + 1) * each]
            self._pipe.zadd(f"engine:{engine}", {str(key): at for at, key in enumerate(own)})
            for key in own:
                self._pipe.hset(str(key), field, b"")
            self._mapped[engine] = own[-1]
        if len(self._mapped) > _REMEMBER:
            self._mapped.clear()
        return None

    def _parent(self, name: str, event: BlockStored) -> int | None:
        """The request key of the event's parent, the model's own for a first block."""
        if event.parent_block_hash is None:
            if name not in self._roots:
                self._roots[name] = model_key(self._where.seed, name)
            return self._roots[name]
        engine = low_64(event.parent_block_hash)
        if engine not in self._mapped:
            self.commit()
            last = self._db.zrange(f"engine:{engine}", 0, 0, desc=True)
            if not last or not isinstance(last[0], bytes):
                return None
            self._mapped[engine] = int(last[0])
        return self._mapped[engine]

    def _remove(self, pod: str, event: BlockRemoved) -> None:
        field = PodField(pod, (event.medium or "gpu").lower(), group=event.group_idx).encode()
        for block_hash in event.block_hashes:
            self._pipe.eval(_EVICT, 1, f"engine:{low_64(block_hash)}", field)

    def _clear(self, pod: str) -> None:
        self.commit()
        self._mapped.clear()
        self._purge(pod)

    def _refuse(self, event: BlockStored, why: str) -> None:
        self._refused[why] += len(event.block_hashes)

    def _told_by(self, wire: WireBatch) -> tuple[str, str]:
        """The pod as llm-d calls it, from a topic `kv@<pod>@<model>`, and the model."""
        model = model_of(wire.topic)
        if not model:
            return wire.pod, self._models.get(wire.pod, "")
        pod = wire.topic.decode(errors="replace").split("@")[1]
        self._names.setdefault(pod, wire.pod)
        return pod, model
