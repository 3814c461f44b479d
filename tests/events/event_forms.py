"""The wire forms of every vLLM version, written out apart from kvctl's own table."""

from __future__ import annotations

from typing import Any, TypeAlias

import hypothesis.strategies as st
import msgpack

WireEvent: TypeAlias = dict[str, Any]
"""An event as a plain dict, its tag under `type`."""

STORED_5 = ["block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id"]
STORED_6 = [*STORED_5, "medium"]
STORED_7 = [*STORED_6, "lora_name"]
STORED_8 = [*STORED_7, "extra_keys"]
STORED_9 = [*STORED_8, "group_idx"]
STORED_11 = [*STORED_9, "kv_cache_spec_kind", "kv_cache_spec_sliding_window"]
STORED_12 = [*STORED_11, "locality"]
STORED_13 = [*STORED_12, "ownership"]
STORED_14 = [*STORED_13, "session_id"]
STORED_15 = [*STORED_14, "lookahead_token_ids"]

REMOVED_1 = ["block_hashes"]
REMOVED_2 = ["block_hashes", "medium"]
REMOVED_3 = ["block_hashes", "medium", "group_idx"]
REMOVED_4 = [*REMOVED_3, "locality"]
REMOVED_5 = [*REMOVED_4, "ownership"]

# version -> (is a map, fields of BlockStored, fields of BlockRemoved, elements of a batch)
VERSIONS: dict[str, tuple[bool, list[str], list[str], int]] = {
    "0.9.0": (False, STORED_5, REMOVED_1, 2),
    "0.9.1": (False, STORED_5, REMOVED_1, 3),
    "0.10.1": (False, STORED_5, REMOVED_1, 3),
    "0.10.2": (False, STORED_6, REMOVED_2, 3),
    "0.13": (False, STORED_6, REMOVED_2, 3),
    "0.14": (False, STORED_7, REMOVED_2, 3),
    "0.16": (False, STORED_7, REMOVED_2, 3),
    "0.17": (False, STORED_8, REMOVED_2, 3),
    "0.19": (False, STORED_8, REMOVED_2, 3),
    "0.20": (False, STORED_9, REMOVED_3, 3),
    "0.21": (False, STORED_9, REMOVED_3, 3),
    "0.22": (False, STORED_11, REMOVED_3, 3),
    "0.23": (False, STORED_11, REMOVED_3, 3),
    "0.24": (True, STORED_11, REMOVED_3, 3),
    "0.25": (True, STORED_11, REMOVED_3, 3),
    "0.26": (True, STORED_12, REMOVED_4, 3),
    "0.28": (True, STORED_12, REMOVED_4, 3),
    "0.29": (True, STORED_13, REMOVED_5, 3),
    "0.30": (True, STORED_14, REMOVED_5, 3),
    "0.32": (True, STORED_14, REMOVED_5, 3),
    "0.33": (True, STORED_15, REMOVED_5, 3),
}
ARRAY_LENGTHS = {"0.9.1": 6, "0.10.2": 7, "0.14": 8, "0.17": 9, "0.20": 10, "0.22": 12}
"""Elements of a `BlockStored` array with its tag, as the contracts count them."""

# What a map says even when it is null: vLLM's structs give these fields no default (seen in the
# recordings of 0.32).
NEVER_OMITTED = {"BlockStored": STORED_7, "BlockRemoved": REMOVED_2, "AllBlocksCleared": []}


def field_names(version: str, tag: str) -> list[str]:
    """What that version sends of an event of this type, in order."""
    _is_map, stored, removed, _elements = VERSIONS[version]
    return {"BlockStored": stored, "BlockRemoved": removed, "AllBlocksCleared": []}[tag]


def wire_object(version: str, event: WireEvent) -> list[Any] | WireEvent:
    """An event as the plain object that version packs."""
    tag = event["type"]
    names = field_names(version, tag)
    if not VERSIONS[version][0]:
        return [tag, *(event.get(name) for name in names)]
    kept = NEVER_OMITTED[tag]
    sent = {name: event.get(name) for name in names}
    return {"type": tag} | {n: v for n, v in sent.items() if v is not None or n in kept}


def packed(version: str, ts: float, events: list[WireEvent], rank: int) -> bytes:
    """A batch as that version sends it."""
    batch = [ts, [wire_object(version, event) for event in events], rank]
    payload: bytes = msgpack.packb(batch[: VERSIONS[version][3]])
    return payload


def store(**changed: Any) -> WireEvent:
    """A valid store of two blocks of two tokens, with some fields set otherwise."""
    fields = {
        "type": "BlockStored",
        "block_hashes": [1, 2],
        "parent_block_hash": None,
        "token_ids": [1, 2, 3, 4],
        "block_size": 2,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
    }
    return fields | changed


REMOVE: WireEvent = {"type": "BlockRemoved", "block_hashes": [1], "medium": "GPU"}
CLEAR: WireEvent = {"type": "AllBlocksCleared"}

INT_HASHES = st.integers(-(2**63), 2**64 - 1)
BYTE_HASHES = st.binary(min_size=32, max_size=32) | st.binary(min_size=16, max_size=16)
NAMES = st.text(max_size=12)
MAYBE_NAMES = st.none() | NAMES
EXTRAS = st.none() | st.lists(
    NAMES | st.tuples(NAMES, st.integers(0, 5000)).map(list) | st.binary(max_size=8), max_size=3
)


@st.composite
def stored_events(draw: st.DrawFn) -> WireEvent:
    """A valid store: hashes for all of its blocks, for the last of them, or without tokens."""
    size = draw(st.integers(1, 8))
    blocks = draw(st.integers(1, 4))
    hashes = draw(st.sampled_from([INT_HASHES, BYTE_HASHES]))
    named = draw(st.integers(0, blocks))
    untold = draw(st.integers(0, 9)) == 0
    tokens = st.lists(st.integers(0, 200_000), min_size=size * blocks, max_size=size * blocks)
    return {
        "type": "BlockStored",
        "block_hashes": draw(st.lists(hashes, min_size=named, max_size=named)),
        "parent_block_hash": draw(st.none() | hashes),
        "token_ids": [] if untold else draw(tokens),
        "block_size": 0 if untold else size,
        "lora_id": draw(st.none() | st.integers(0, 9)),
        "medium": draw(st.sampled_from([None, "GPU", "CPU", "STORAGE", "FS"])),
        "lora_name": draw(MAYBE_NAMES),
        "extra_keys": draw(st.none() | st.lists(EXTRAS, min_size=named, max_size=named)),
        "group_idx": draw(st.none() | st.integers(0, 5)),
        "kv_cache_spec_kind": draw(st.sampled_from([None, "full_attention", "sliding_window"])),
        "kv_cache_spec_sliding_window": draw(st.none() | st.integers(1, 4096)),
        "locality": draw(st.sampled_from([None, "LOCAL", "REMOTE"])),
        "ownership": draw(MAYBE_NAMES),
        "session_id": draw(MAYBE_NAMES),
        "lookahead_token_ids": draw(st.none() | st.lists(st.integers(0, 9), max_size=3)),
    }


REMOVED_EVENTS = st.fixed_dictionaries(
    {
        "type": st.just("BlockRemoved"),
        "block_hashes": st.lists(INT_HASHES, max_size=3) | st.lists(BYTE_HASHES, max_size=3),
        "medium": st.sampled_from([None, "GPU", "CPU"]),
        "group_idx": st.none() | st.integers(0, 5),
        "locality": st.sampled_from([None, "LOCAL"]),
        "ownership": MAYBE_NAMES,
    }
)
EVENTS = st.lists(stored_events() | REMOVED_EVENTS | st.just(CLEAR), max_size=5)
TIMES = st.floats(0, 4e9, allow_nan=False)
RANKS = st.integers(0, 7)
ANY_VERSION = st.sampled_from(sorted(VERSIONS))
