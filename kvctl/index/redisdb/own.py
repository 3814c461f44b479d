"""kvctl's own keys beside a router's: positions of streams, and what reconcile remembers.

All begin with `kvctl:`; none is written unless the operator said `--own-keys`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import redis
from redis.client import Pipeline

from kvctl.events import Position
from kvctl.index.errors import IndexStoreError

POSITIONS = "kvctl:positions"
MEMORY = "kvctl:memory"


class OwnKeys:
    """Two hashes of kvctl's own."""

    def __init__(self, db: redis.Redis, shown: str) -> None:
        self._db = db
        self._shown = shown

    def positions(self) -> dict[tuple[str, int], Position]:
        """The last batch that every (pod, DP rank) was taken in from."""
        found = {}
        try:
            for name, value in self._db.hgetall(POSITIONS).items():
                pod, rank = json.loads(name)
                seq, ts, digest = json.loads(value)
                found[pod, rank] = Position(seq, ts, int(digest, 16))
        except (ValueError, TypeError):
            raise IndexStoreError(
                f"{self._shown}: {POSITIONS} is not as kvctl writes it",
                remedy=f"DEL {POSITIONS}: the next tail then replays from the start",
            ) from None
        return found

    def write_positions(
        self, pipe: Pipeline, positions: Mapping[tuple[str, int], Position | None]
    ) -> None:
        """Add the positions to a transaction; None forgets one."""
        for (pod, rank), position in positions.items():
            name = json.dumps([pod, rank])
            if position is None:
                pipe.hdel(POSITIONS, name)
            else:
                value = json.dumps([position.seq, position.ts, f"{position.digest:016x}"])
                pipe.hset(POSITIONS, name, value)

    def recall(self, name: str) -> str | None:
        """What was remembered under that name."""
        value = self._db.hget(MEMORY, name)
        return value.decode(errors="replace") if isinstance(value, bytes) else None

    def remember(self, name: str, value: str) -> None:
        """Keep a text under a name."""
        self._db.hset(MEMORY, name, value)
