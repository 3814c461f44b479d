"""Bytes off the wire -> `EventBatch`, whichever vLLM version wrote them.

Two ways lead there. The fast one decodes a whole batch against strict types, in C. Whatever it
refuses (an unknown event type, a field of a newer version, mixed forms, a fault) is looked at
again event by event: the unknown is kept, and a fault is named with its event and field.

Token ids are most of a payload. Who does not look at them can have them passed over, in half the
time.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Generic, TypeVar, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple

from kvctl.events.errors import DecodeError
from kvctl.events.model import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    Event,
    EventBatch,
    UnknownEvent,
)
from kvctl.events.wire import FIELDS

MAX_PAYLOAD = 64 * 1024 * 1024
"""Largest payload that is decoded, in bytes; a larger one is refused unread."""

MAX_EVENTS = 1_000_000
"""Most events in one batch. Engines send thousands at worst (an eviction of a whole cache); a
payload of single bytes would declare 64 million, at 60 bytes of memory each."""

MAX_DEPTH = 32
"""How deep arrays and maps may nest in a field whose type is open (vLLM's extra keys need 3):
what is done with such a value further on (printing, hashing, redacting) recurses into it."""


_E = TypeVar("_E")


class _ArrayStored(BlockStored, tag="BlockStored", array_like=True, frozen=True, gc=False):
    pass


class _ArrayRemoved(BlockRemoved, tag="BlockRemoved", array_like=True, frozen=True, gc=False):
    pass


class _ArrayCleared(
    AllBlocksCleared, tag="AllBlocksCleared", array_like=True, frozen=True, gc=False
):
    pass


# What the wire has under `token_ids` is passed over like any field that a map may have besides.
class _UntoldStored(
    BlockStored,
    tag="BlockStored",
    rename={"token_ids": "untold"},
    forbid_unknown_fields=False,
    frozen=True,
    gc=False,
):
    token_ids: Annotated[list[int], msgspec.Meta(max_length=0)] = msgspec.field(
        default_factory=list
    )


class _UntoldArrayStored(BlockStored, tag="BlockStored", array_like=True, frozen=True, gc=False):
    token_ids: Raw = Raw(b"\x90")  # type: ignore[assignment]  # `_untold` puts a list there


# What they become, so that equal events compare equal.
_PUBLIC: dict[type[Event], type[Event]] = {
    _ArrayStored: BlockStored,
    _UntoldArrayStored: BlockStored,
    _ArrayRemoved: BlockRemoved,
    _ArrayCleared: AllBlocksCleared,
}


class _BatchOf(Struct, Generic[_E], array_like=True, forbid_unknown_fields=True, gc=False):
    ts: float
    events: list[_E]
    data_parallel_rank: int | None = None


class _Envelope(Struct, array_like=True):
    ts: float
    events: list[Raw]
    data_parallel_rank: int | None = None


# What msgspec raises on bytes it cannot take, besides its own errors: strings that are not UTF-8,
# map keys that cannot be keys, nesting deeper than the interpreter allows, numbers and lengths
# beyond the machine's.
_FAULTS = (
    msgspec.MsgspecError,
    UnicodeDecodeError,
    RecursionError,
    OverflowError,
    TypeError,
    MemoryError,
    ValueError,
)

_decode_maps = msgspec.msgpack.Decoder(
    _BatchOf[BlockStored | BlockRemoved | AllBlocksCleared]
).decode
_decode_arrays = msgspec.msgpack.Decoder(
    _BatchOf[_ArrayStored | _ArrayRemoved | _ArrayCleared]
).decode
_decode_untold_maps = msgspec.msgpack.Decoder(
    _BatchOf[_UntoldStored | BlockRemoved | AllBlocksCleared]
).decode
_decode_untold_arrays = msgspec.msgpack.Decoder(
    _BatchOf[_UntoldArrayStored | _ArrayRemoved | _ArrayCleared]
).decode
_decode_envelope = msgspec.msgpack.Decoder(_Envelope).decode
_decode_any = msgspec.msgpack.Decoder().decode

_TOO_DEEP = "nested too deeply"
# msgpack's floats and ints with their heads: bytes each takes.
_NUMBER_SIZES = {
    0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9,
}  # fmt: skip
# How a batch of map events mostly begins: an array, a float, an array of up to 65,535, a map.
_MAPS_OPENING = re.compile(
    rb"[\x91-\x9F]\xCB.{8}(?:[\x91-\x9F]|\xDC..)[\x80-\x8F]", re.DOTALL
).match
# A batch is an array: msgspec names its elements by their place.
_BATCH_FIELDS = {f"[{at}]": name for at, name in enumerate(_Envelope.__struct_fields__)}

_MODELS: dict[str, type[BlockStored | BlockRemoved | AllBlocksCleared]] = {
    "BlockStored": BlockStored,
    "BlockRemoved": BlockRemoved,
    "AllBlocksCleared": AllBlocksCleared,
}


def decode_batch(payload: bytes, *, tokens: bool = True) -> EventBatch:
    """Decode one payload (the last frame of a message).

    Without ``tokens`` the token ids are passed over: `token_ids` is empty, and neither they nor
    fields unknown to kvctl are looked at. Raises `DecodeError` and nothing else, whatever the
    bytes.
    """
    if len(payload) > MAX_PAYLOAD:
        raise DecodeError(f"payload of {len(payload)} bytes is over the limit of {MAX_PAYLOAD}")
    is_map = _MAPS_OPENING(payload) is not None
    if not is_map:
        at, declared = _events_of(payload)
        if declared > MAX_EVENTS:
            raise DecodeError(
                f"a batch of {declared:,} events is over the limit of {MAX_EVENTS:,}",
                field="events",
            )
        is_map = _is_map(payload, at)
    try:
        if is_map:
            maps = (_decode_maps if tokens else _decode_untold_maps)(payload)
            return _checked(maps.ts, cast("list[Event]", maps.events), maps.data_parallel_rank)
        arrays = (_decode_arrays if tokens else _decode_untold_arrays)(payload)
    except _FAULTS:
        return _decode_slowly(payload, tokens=tokens)
    events: list[Event] = [_PUBLIC[type(each)](*astuple(each)) for each in arrays.events]
    if not tokens:
        events = list(map(_untold, events))
    return _checked(arrays.ts, events, arrays.data_parallel_rank)


def _events_of(payload: bytes) -> tuple[int, int]:
    """Where the first event stands, and how many are declared; (0, 0) for what is no batch.

    A batch is [ts, events, ...] with either array's header in any of msgpack's three forms, and a
    number as ts.
    """
    at, _length = _array(payload, 0)
    if not at or len(payload) <= at:
        return 0, 0
    at += _NUMBER_SIZES.get(payload[at], 1)
    return _array(payload, at)


def is_map_form(payload: bytes) -> bool:
    """Whether its events are maps (vLLM 0.24+), told by the first; False for an empty batch."""
    at, _declared = _events_of(payload)
    return _is_map(payload, at)


def _array(payload: bytes, at: int) -> tuple[int, int]:
    """Where an array's first element stands, and its length; (0, 0) for anything else."""
    head = payload[at] if len(payload) > at else 0
    if 0x90 <= head <= 0x9F:
        return at + 1, head - 0x90
    if head in (0xDC, 0xDD):
        size = 2 if head == 0xDC else 4
        return at + 1 + size, int.from_bytes(payload[at + 1 : at + 1 + size], "big")
    return 0, 0


def _is_map(payload: bytes, at: int) -> bool:
    first = payload[at] if at and len(payload) > at else 0
    return 0x80 <= first <= 0x8F or first in (0xDE, 0xDF)


def _checked(ts: float, events: list[Event], rank: int | None) -> EventBatch:
    if not math.isfinite(ts):
        raise DecodeError(f"the timestamp is {ts}", field="ts")
    if rank is not None and not 0 <= rank < 2**31:
        raise DecodeError(f"{rank} is no rank", field="data_parallel_rank")
    for number, event in enumerate(events):
        if isinstance(event, BlockStored):
            _check_stored(event, number)
    return EventBatch(ts, events, rank)


def _check_depth(value: Any, number: int, field: str = "") -> None:
    if _too_deep(value, MAX_DEPTH):
        raise DecodeError(_TOO_DEEP, event=number, field=field)


def _too_deep(value: Any, room: int) -> bool:
    if isinstance(value, dict):
        inner: list[Any] | tuple[Any, ...] = [*value, *value.values()]  # an array may be a key
    elif isinstance(value, (list, tuple)):
        inner = value
    else:
        return False
    return room == 0 or any(
        _too_deep(item, room - 1) for item in inner if isinstance(item, (list, tuple, dict))
    )


def _check_stored(event: BlockStored, number: int) -> None:
    if event.extra_keys is not None and any(event.extra_keys):
        _check_depth(event.extra_keys, number, "extra_keys")
    if event.lookahead_token_ids is not None:
        _check_depth(event.lookahead_token_ids, number, "lookahead_token_ids")
    tokens, size = len(event.token_ids), event.block_size
    if not tokens:  # offload tiers name blocks without telling their tokens
        if size < 0:
            raise DecodeError(f"block size {size}", event=number, field="block_size")
        return
    if size <= 0:
        raise DecodeError(
            f"block size {size} with {tokens} tokens", event=number, field="block_size"
        )
    if tokens % size:
        raise DecodeError(
            f"{tokens} tokens are no whole number of blocks of {size}",
            event=number,
            field="token_ids",
        )
    if len(event.block_hashes) * size > tokens:
        raise DecodeError(
            f"{len(event.block_hashes)} hashes for {tokens // size} blocks of tokens",
            event=number,
            field="block_hashes",
        )


def _decode_slowly(payload: bytes, *, tokens: bool) -> EventBatch:
    try:
        envelope = _decode_envelope(payload)
    except _FAULTS as error:
        raise _fault(error) from None
    events = [_decode_event(raw, number) for number, raw in enumerate(envelope.events)]
    batch = _checked(envelope.ts, events, envelope.data_parallel_rank)
    if tokens:
        return batch
    return EventBatch(batch.ts, list(map(_untold, batch.events)), batch.data_parallel_rank)


def _untold(event: Event) -> Event:
    """The event without its tokens."""
    if isinstance(event, BlockStored):
        return msgspec.structs.replace(event, token_ids=[])
    return event


def _decode_event(raw: Raw, number: int) -> Event:
    try:
        value = _decode_any(raw)
    except _FAULTS as error:
        raise _fault(error, number) from None
    tag, fields = _split(value, number)
    model = _MODELS.get(tag)
    if model is None:
        _check_depth(fields, number)
        return UnknownEvent(tag, fields)
    names = FIELDS[tag]
    known = {name: fields[name] for name in names if name in fields}
    try:
        # Without `builtin_types` text would be taken for base64 where bytes are expected.
        event = msgspec.convert(known, model, builtin_types=(bytes,))
    except _FAULTS as error:
        raise _fault(error, number) from None
    unknown = {name: value for name, value in fields.items() if name not in known}
    _check_depth(unknown, number)
    return msgspec.structs.replace(event, unknown=unknown) if unknown else event


def _split(value: Any, number: int) -> tuple[str, dict[str, Any]]:
    """Tag and named fields of an untyped event, from either form."""
    if isinstance(value, dict):
        tag = value.pop("type", None)
        fields = {_name(key, number): item for key, item in value.items()}
    elif isinstance(value, list):
        tag = value[0] if value else None
        names = FIELDS.get(tag, ()) if isinstance(tag, str) else ()
        fields = {
            names[at] if at < len(names) else f"field_{at + 1}": item
            for at, item in enumerate(value[1:])
        }
    else:
        raise DecodeError(
            f"an event is an array or a map, not {type(value).__name__}", event=number
        )
    if not isinstance(tag, str):
        raise DecodeError("the event has no type", event=number)
    return tag, fields


def _name(key: Any, number: int) -> str:
    if isinstance(key, str):
        return key
    _check_depth(key, number)
    return repr(key)


def _fault(error: Exception, number: int | None = None) -> DecodeError:
    """msgspec's complaint as ours: `reason - at $.path` taken apart."""
    if isinstance(error, RecursionError):
        return DecodeError(_TOO_DEEP, event=number)
    if isinstance(error, MemoryError):
        return DecodeError("a length beyond memory", event=number)
    reason, _, path = str(error).partition(" - at ")
    field = path.strip("`").removeprefix("$").removeprefix(".")
    if number is None:
        field = _BATCH_FIELDS.get(field, field)
    reason = reason[:1].lower() + reason[1:] or type(error).__name__
    return DecodeError(f"not a batch of KV events: {reason}", event=number, field=field)
