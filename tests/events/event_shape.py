"""What a decoded batch may look like, from the contracts and not from kvctl's own checks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from event_forms import REMOVED_5, STORED_15, WireEvent

from kvctl.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    DecodeError,
    Event,
    EventBatch,
    UnknownEvent,
    decode_batch,
)

KINDS: dict[str, type[BlockStored | BlockRemoved | AllBlocksCleared]] = {
    "BlockStored": BlockStored,
    "BlockRemoved": BlockRemoved,
    "AllBlocksCleared": AllBlocksCleared,
}
FIELDS = {"BlockStored": STORED_15, "BlockRemoved": REMOVED_5, "AllBlocksCleared": []}
ABSENT: dict[str, Any] = {"token_ids": [], "block_size": 0}
DEEPEST = 40


def typed(event: WireEvent) -> Event:
    """The event as kvctl's own class."""
    return KINDS[event["type"]](**{name: v for name, v in event.items() if name != "type"})


def told(event: Event) -> WireEvent:
    """What a decoded event says, without what is absent."""
    tag = {kind: tag for tag, kind in KINDS.items()}[type(event)]  # type: ignore[index]
    fields = {name: getattr(event, name) for name in [*FIELDS[tag], "unknown"]}
    return {"type": tag} | {name: v for name, v in fields.items() if v is not None}


def expected(event: WireEvent, names: list[str]) -> WireEvent:
    """What must come out of an event of which only these fields were sent."""
    sent = {name: event[name] for name in names if event.get(name) is not None}
    absent = ABSENT if event["type"] == "BlockStored" else {}
    return {"type": event["type"]} | absent | sent


def is_int(value: object) -> bool:
    return type(value) is int and -(2**63) <= value < 2**64


def is_hash(value: object) -> bool:
    return is_int(value) or type(value) is bytes


def is_text(value: object) -> bool:
    return type(value) is str


def list_of(each: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: type(value) is list and all(map(each, value))


def maybe(some: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or some(value)


def is_shallow(value: object) -> bool:
    """Nested so little that any code may recurse into it."""
    layer = [value]
    for _ in range(DEEPEST):
        lists = [item for item in layer if isinstance(item, (list, tuple))]
        maps = [item for item in layer if isinstance(item, dict)]
        layer = [each for item in lists for each in item]
        layer += [each for item in maps for pair in item.items() for each in pair]
    return not layer


SHAPES: dict[str, Callable[[object], bool]] = {
    "block_hashes": list_of(is_hash),
    "parent_block_hash": maybe(is_hash),
    "token_ids": list_of(is_int),
    "block_size": is_int,
    "lora_id": maybe(is_int),
    "medium": maybe(is_text),
    "lora_name": maybe(is_text),
    "extra_keys": maybe(list_of(maybe(lambda keys: type(keys) is list and is_shallow(keys)))),
    "group_idx": maybe(is_int),
    "kv_cache_spec_kind": maybe(is_text),
    "kv_cache_spec_sliding_window": maybe(is_int),
    "locality": maybe(is_text),
    "ownership": maybe(is_text),
    "session_id": maybe(is_text),
    "lookahead_token_ids": is_shallow,
}


def is_extra_fields(value: object, known: list[str]) -> bool:
    """Fields beyond the known ones, by name."""
    return (
        type(value) is dict
        and all(type(name) is str and name not in known for name in value)
        and is_shallow(value)
    )


def check_event(event: Event) -> None:
    if type(event) is UnknownEvent:
        assert is_text(event.type)
        assert event.type not in KINDS
        assert is_extra_fields(event.fields, ["type"])
        return
    assert type(event) in KINDS.values()
    fields = told(event)
    tag = fields.pop("type")
    unknown = fields.pop("unknown", None)
    assert unknown is None or (unknown and is_extra_fields(unknown, ["type", *FIELDS[tag]]))
    for name in FIELDS[tag]:
        assert SHAPES[name](getattr(event, name)), name
    if isinstance(event, BlockStored):
        tokens, size = len(event.token_ids), event.block_size
        if tokens:
            assert size > 0
            assert tokens % size == 0
            assert len(event.block_hashes) * size <= tokens
        else:
            assert size >= 0


def check_batch(batch: EventBatch) -> None:
    """Every field is of its type, and the lengths fit each other."""
    assert type(batch.ts) is float
    assert math.isfinite(batch.ts)
    rank = batch.data_parallel_rank
    assert rank is None or (type(rank) is int and 0 <= rank < 2**31)
    assert type(batch.events) is list
    for event in batch.events:
        check_event(event)


def survives(payload: bytes) -> bool:
    """Whether the bytes decode: to a batch of possible shape, or else to a `DecodeError`."""
    try:
        batch = decode_batch(payload)
    except DecodeError:
        return False
    check_batch(batch)
    return True
