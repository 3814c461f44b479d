"""Records made by hand for index tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvctl.events import (
    AllBlocksCleared,
    Batch,
    BlockHash,
    BlockRemoved,
    BlockStored,
    Event,
    EventBatch,
    WireBatch,
)

SIZE = 4


def batch(*events: Event, pod: str = "pod-a", rank: int = 0, ts: float = 1000.0, topic: str = ""):
    wire = WireBatch(int(ts * 1e9), pod, rank, topic.encode(), 0, b"")
    return Batch(wire, EventBatch(ts, list(events), rank))


def stored(
    hashes: Sequence[BlockHash],
    tokens: Sequence[int],
    parent: BlockHash | None = None,
    **fields: Any,
) -> BlockStored:
    return BlockStored(list(hashes), parent, list(tokens), fields.pop("size", SIZE), **fields)


def removed(*hashes: BlockHash, **fields: Any) -> BlockRemoved:
    return BlockRemoved(list(hashes), **fields)


def cleared() -> AllBlocksCleared:
    return AllBlocksCleared()


def tokens(*blocks: int, size: int = SIZE) -> list[int]:
    """Token ids of whole blocks: block 7 is 70, 71, 72, 73."""
    return [block * 10 + at for block in blocks for at in range(size)]
