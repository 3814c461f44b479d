"""KV events as an engine publishes them, in one shape for every vLLM version.

Field names are the wire's (vLLM ``distributed/kv_events.py``, 0.9 to 0.33). What a version does
not send is ``None``; what kvctl does not know yet is kept in ``unknown``.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct

BlockHash: TypeAlias = int | bytes
"""An engine's name for a block: a 64-bit int (signed up to vLLM 0.10.1) or 16 or 32 bytes."""

# `unknown` is ours, not the wire's: no map is both empty and not, so the wire cannot fill it.
# Decoding is strict about it and about fields not named here; `kvctl.events.decode` gathers those
# itself.
UnknownFields: TypeAlias = Annotated[dict[str, Any], Meta(min_length=1, max_length=0)] | None


class BlockStored(
    Struct,
    tag="BlockStored",
    tag_field="type",
    forbid_unknown_fields=True,
    frozen=True,
    gc=False,
):
    """Blocks entered the cache.

    ``token_ids`` holds the tokens of the whole span, ``block_size`` to a block. ``block_hashes``
    names its blocks, or only the last of them (sliding-window groups), or blocks whose tokens
    are not told (offload tiers: no tokens at all). ``parent_block_hash`` is the block before the
    first of the span; within the event each block is the parent of the next.
    """

    block_hashes: list[BlockHash]
    parent_block_hash: BlockHash | None = None
    token_ids: list[int] = []
    block_size: int = 0
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[list[Any] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None
    ownership: str | None = None
    session_id: str | None = None
    lookahead_token_ids: Any = None
    unknown: UnknownFields = None


class BlockRemoved(
    Struct,
    tag="BlockRemoved",
    tag_field="type",
    forbid_unknown_fields=True,
    frozen=True,
    gc=False,
):
    """One physical copy of each named block left ``medium`` (None means GPU)."""

    block_hashes: list[BlockHash]
    medium: str | None = None
    group_idx: int | None = None
    locality: str | None = None
    ownership: str | None = None
    unknown: UnknownFields = None


class AllBlocksCleared(
    Struct,
    tag="AllBlocksCleared",
    tag_field="type",
    forbid_unknown_fields=True,
    frozen=True,
    gc=False,
):
    """The engine (one DP rank) wiped its whole prefix cache."""

    unknown: UnknownFields = None


class UnknownEvent(Struct, frozen=True):
    """An event type kvctl does not know: kept as it came, counted, never fatal.

    ``fields`` is what followed the tag: by name for a map event, as ``field_1``, ``field_2``, …
    for an array event.
    """

    type: str
    fields: dict[str, Any]


Event: TypeAlias = BlockStored | BlockRemoved | AllBlocksCleared | UnknownEvent


class EventBatch(Struct, frozen=True):
    """One published message, decoded.

    ``ts`` is the engine's clock, seconds since the epoch. The order of ``events`` matters: a
    clear in front of a store wipes what was, not what the store brings.
    """

    ts: float
    events: list[Event]
    data_parallel_rank: int | None = None


def event_type(event: Event) -> str:
    """The event's tag on the wire, known or not."""
    return event.type if isinstance(event, UnknownEvent) else type(event).__struct_config__.tag  # type: ignore[return-value]


def hash_text(block_hash: BlockHash) -> str:
    """A block hash as kvctl prints it: ints in decimal, bytes in lower-case hex."""
    return block_hash.hex() if isinstance(block_hash, bytes) else str(block_hash)


def low_64(block_hash: BlockHash) -> int:
    """The last 64 bits of a block hash: what vLLM's int form has of its bytes form, and all that
    llm-d keeps of either."""
    if isinstance(block_hash, bytes):
        return int.from_bytes(block_hash[-8:], "big")
    return block_hash & 0xFFFF_FFFF_FFFF_FFFF
