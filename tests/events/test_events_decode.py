"""Decoding: every version's form comes back, and what is unknown is kept."""

from __future__ import annotations

import struct
from typing import Any

import hypothesis.strategies as st
import msgpack
import pytest
from event_bytes import BARE, HEAD, WIDTHS, array, map_header, mapping
from event_forms import (
    ANY_VERSION,
    CLEAR,
    EVENTS,
    RANKS,
    REMOVE,
    TIMES,
    VERSIONS,
    WireEvent,
    field_names,
    packed,
    store,
    wire_object,
)
from event_shape import check_batch, expected, told, typed
from hypothesis import given, settings

from kvctl.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    DecodeError,
    EventBatch,
    UnknownEvent,
    decode_batch,
)
from kvctl.events.decode import MAX_PAYLOAD


def events_of(*events: object) -> list[Any]:
    """What comes out of a batch of these events."""
    return decode_batch(msgpack.packb([1.0, list(events), 0])).events


@settings(max_examples=300)
@given(version=ANY_VERSION, ts=TIMES, events=EVENTS, rank=RANKS)
def test_a_valid_batch_of_any_version_comes_back(
    version: str, ts: float, events: list[WireEvent], rank: int
) -> None:
    batch = decode_batch(packed(version, ts, events, rank))
    check_batch(batch)
    assert batch.ts == ts
    assert batch.data_parallel_rank == (None if version == "0.9.0" else rank)
    assert [told(event) for event in batch.events] == [
        expected(event, field_names(version, event["type"])) for event in events
    ]


@settings(max_examples=200)
@given(version=ANY_VERSION, events=EVENTS)
def test_an_unknown_event_in_the_batch_changes_nothing_about_the_others(
    version: str, events: list[WireEvent]
) -> None:
    """A batch of known events only takes a shorter way through the decoder."""
    wire = [wire_object(version, event) for event in events]
    alone = decode_batch(msgpack.packb([1.0, wire, 0]))
    beside = decode_batch(msgpack.packb([1.0, [*wire, ["Moved"]], 0]))
    assert alone.events == beside.events[:-1]
    assert beside.events[-1] == UnknownEvent("Moved", {})


@settings(max_examples=200)
@given(
    data=st.data(),
    events=EVENTS,
    outer=WIDTHS,
    inner=WIDTHS,
    ts=st.sampled_from(
        [struct.pack(">Bd", 0xCB, 2), struct.pack(">Bf", 0xCA, 2), b"\x02", b"\xcc\x02",
         b"\xcd\x00\x02", b"\xce" + bytes(3) + b"\x02", b"\xcf" + bytes(7) + b"\x02",
         b"\xd0\x02", b"\xd3" + bytes(7) + b"\x02"]
    ),
    rank=st.sampled_from([[], [b"\x03"], [b"\xc0"], [b"\x03", b"\xa5newer"]]),
)  # fmt: skip
def test_any_width_of_any_header_says_the_same(
    data: st.DataObject, events: list[WireEvent], outer: int, inner: int, ts: bytes, rank: Any
) -> None:
    """Maps among arrays, long headers for short lists, times as ints or small floats."""
    wire = []
    for event in events:
        plain = wire_object(data.draw(st.sampled_from(["0.33", "0.23"])), event)
        if isinstance(plain, dict):
            pairs = [(msgpack.packb(name), msgpack.packb(value)) for name, value in plain.items()]
            wire.append(mapping(*pairs, width=data.draw(st.sampled_from([2, 4]))))
        else:
            wire.append(array(*map(msgpack.packb, plain), width=data.draw(WIDTHS)))
    batch = decode_batch(array(ts, array(*wire, width=inner), *rank, width=outer))
    assert batch.ts == 2.0
    assert batch.data_parallel_rank == (3 if rank and rank[0] == b"\x03" else None)
    whole = decode_batch(packed("0.33", 2.0, events, 0))
    assert [type(event) for event in batch.events] == [type(event) for event in whole.events]
    for event, decoded in zip(events, batch.events, strict=True):
        names = field_names("0.23", event["type"])
        said = expected(event, names)
        assert {k: v for k, v in told(decoded).items() if k in said} == said


def test_fields_beyond_the_known_ones_are_kept() -> None:
    (mapped,) = events_of(store(hue="red", weights=[1, {"a": b"b"}]))
    assert mapped.unknown == {"hue": "red", "weights": [1, {"a": b"b"}]}
    assert mapped.block_hashes == [1, 2]
    names = VERSIONS["0.33"][1]
    (listed,) = events_of(["BlockStored", *(store().get(name) for name in names), "more", 5])
    assert listed.unknown == {"field_16": "more", "field_17": 5}
    assert listed.token_ids == [1, 2, 3, 4]
    removed, cleared = events_of(REMOVE | {"hue": 1}, ["AllBlocksCleared", "all"])
    assert removed == BlockRemoved([1], "GPU", unknown={"hue": 1})
    assert cleared == AllBlocksCleared(unknown={"field_1": "all"})


@pytest.mark.parametrize("value", [5, {}, {"a": 1}, [], "x"])
def test_a_field_of_the_wire_may_be_called_unknown(value: object) -> None:
    (decoded,) = events_of(REMOVE | {"unknown": value})
    assert decoded.unknown == {"unknown": value}
    (listed,) = events_of(["BlockRemoved", [1], None, None, None, None, value])
    assert listed.unknown == {"field_6": value}


def test_an_event_without_its_later_fields_is_whole() -> None:
    assert events_of(["BlockStored", [7]]) == [BlockStored([7])]
    assert events_of({"type": "BlockRemoved", "block_hashes": []}) == [BlockRemoved([])]


def test_unknown_events_are_kept_among_known_ones() -> None:
    moved, copied, cleared, odd = events_of(
        ["Moved", 1, "x"], {"type": "Copied", "to": "CPU"}, CLEAR, [""]
    )
    assert moved == UnknownEvent("Moved", {"field_1": 1, "field_2": "x"})
    assert copied == UnknownEvent("Copied", {"to": "CPU"})
    assert cleared == AllBlocksCleared()
    assert odd == UnknownEvent("", {})


def test_arrays_and_maps_may_stand_in_one_batch() -> None:
    mixed = [["BlockRemoved", [1]], REMOVE | {"block_hashes": [2]}, ["AllBlocksCleared"], store()]
    wanted = [
        BlockRemoved([1]),
        BlockRemoved([2], "GPU"),
        AllBlocksCleared(),
        BlockStored([1, 2], None, [1, 2, 3, 4], 2, medium="GPU"),
    ]
    assert events_of(*mixed) == wanted
    assert events_of(*reversed(mixed)) == wanted[::-1]


@pytest.mark.parametrize("count", [0, 1, 15, 16, 70_000])
@pytest.mark.parametrize("event", [["AllBlocksCleared"], CLEAR])
def test_a_batch_may_hold_any_number_of_events(event: object, count: int) -> None:
    assert events_of(*[event] * count) == [AllBlocksCleared()] * count


def test_a_rank_may_be_missing_or_null() -> None:
    for batch in ([1.0, [CLEAR]], [1.0, [CLEAR], None], [1.0, []], [1.0, [["AllBlocksCleared"]]]):
        decoded = decode_batch(msgpack.packb(batch))
        assert decoded.data_parallel_rank is None
        assert len(decoded.events) == len(batch[1])  # type: ignore[arg-type]


def test_a_batch_may_grow_more_elements() -> None:
    batch = decode_batch(msgpack.packb([7, [["AllBlocksCleared"]], 1, "newer"]))
    assert batch == EventBatch(7.0, [AllBlocksCleared()], 1)


@pytest.mark.parametrize("number", [-(2**63), -1, 2**63, 2**64 - 1])
def test_hashes_and_tokens_may_be_any_64_bit_int(number: int) -> None:
    event = store(block_hashes=[number, 1], parent_block_hash=number, token_ids=[number] * 4)
    assert events_of(event) == [typed(event)]


def test_keys_that_are_no_text_are_kept_as_text() -> None:
    event = {"type": "BlockRemoved", "block_hashes": [1], 5: "five", b"k": "bytes", None: 0}
    (decoded,) = events_of(event)
    assert decoded == BlockRemoved([1], unknown={"5": "five", "b'k'": "bytes", "None": 0})


def test_of_keys_that_come_twice_the_last_counts() -> None:
    key = msgpack.packb("block_hashes")
    tag = (msgpack.packb("type"), msgpack.packb("BlockRemoved"))
    twice = mapping(tag, (key, msgpack.packb("junk")), (key, msgpack.packb([2])))
    assert decode_batch(BARE + array(twice)).events == [BlockRemoved([2])]
    other = mapping((tag[0], msgpack.packb("AllBlocksCleared")), tag, (key, b"\x91\x02"))
    assert decode_batch(HEAD + array(other) + b"\x00").events == [BlockRemoved([2])]


def test_a_map_may_name_its_type_last() -> None:
    event = {"block_hashes": [1], "medium": "CPU", "type": "BlockRemoved"}
    assert events_of(event) == [BlockRemoved([1], "CPU")]


def test_offload_tiers_may_name_blocks_without_tokens() -> None:
    event = store(token_ids=[], block_size=0, medium="CPU")
    assert events_of(event) == [BlockStored([1, 2], None, [], 0, medium="CPU")]


def payload_of(size: int) -> bytes:
    """A valid batch of that many bytes: one event of an unknown type, long."""
    rest = BARE + b"\x91\x92\xa1x\xc6"
    return rest + struct.pack(">I", size - len(rest) - 4) + bytes(size - len(rest) - 4)


def test_a_payload_over_64_mib_is_refused_and_one_of_64_mib_is_not() -> None:
    assert MAX_PAYLOAD == 64 * 1024 * 1024
    (event,) = decode_batch(payload_of(MAX_PAYLOAD)).events
    assert isinstance(event, UnknownEvent)
    assert set(event.fields) == {"field_1"}
    with pytest.raises(DecodeError, match="67108865 bytes is over the limit of 67108864"):
        decode_batch(payload_of(MAX_PAYLOAD + 1))


def test_a_map_of_a_million_fields_is_an_event_like_any_other() -> None:
    names = [b"\xce" + at.to_bytes(4, "big") for at in range(1_000_000)]
    pairs = b"".join(name + b"\xc0" for name in names)
    event = map_header(1_000_001, 4) + b"\xa4type\xa1x" + pairs
    (decoded,) = decode_batch(BARE + array(event)).events
    assert isinstance(decoded, UnknownEvent)
    assert len(decoded.fields) == 1_000_000
