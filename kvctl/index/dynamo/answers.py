"""What Dynamo's indexer answers, typed (ai-dynamo-runtime 1.6)."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

import msgspec

T = TypeVar("T")


class Worker(msgspec.Struct):
    """One of `GET /workers`: an engine it listens to. ``endpoints`` are by DP rank, as text."""

    instance_id: int
    model_name: str
    block_size: int
    routing_group: str = "default"
    status: str = ""
    endpoints: dict[str, str] = {}

    def ranks(self) -> list[int]:
        """Its DP ranks."""
        return sorted(int(rank) for rank in self.endpoints if rank.isdecimal())


class Block(msgspec.Struct):
    """A block by its engine's hash."""

    block_hash: int


class Stored(msgspec.Struct):
    """Blocks that a worker holds."""

    blocks: list[Block] = []


class EventData(msgspec.Struct):
    """What a dumped event says; a dump has only stores."""

    stored: Stored | None = None


class Event(msgspec.Struct):
    """A dumped event of one DP rank."""

    data: EventData
    dp_rank: int = 0


class RouterEvent(msgspec.Struct):
    """A dumped event of one worker, in a storage tier."""

    worker_id: int
    event: Event
    storage_tier: str = "device"


class ModelDump(msgspec.Struct):
    """The part of `GET /dump` of one model and routing group."""

    block_size: int
    events: list[RouterEvent] = []


class Instance(msgspec.Struct):
    """How much of a prompt a worker holds, in tokens: anywhere, and in GPU memory."""

    longest_matched: int = 0
    gpu: int = 0


class QueryAnswer(msgspec.Struct):
    """`POST /query`: matched tokens, by worker and DP rank."""

    scores: dict[str, dict[str, int]] = {}
    instances: dict[str, Instance] = {}


Workers: TypeAlias = list[Worker]
Dump: TypeAlias = dict[str, ModelDump]


def decode(body: bytes, kind: type[T]) -> T:
    """An answer of a kind. Raises `ValueError` that says where it has another form."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
