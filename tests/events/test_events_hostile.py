"""Damage and malice: whatever the bytes, a batch of possible shape or a `DecodeError`."""

from __future__ import annotations

import tracemalloc
from typing import Any

import hypothesis.strategies as st
import msgpack
import pytest
from event_bytes import BARE, HEAD, VALUES, array, mapping
from event_forms import ANY_VERSION, CLEAR, EVENTS, REMOVE, WireEvent, packed, store
from event_shape import check_batch, survives
from hypothesis import given, settings
from recordings import CAPTURES, frames, lines

from kvctl.events import BlockStored, DecodeError, UnknownEvent, decode_batch
from kvctl.events.decode import MAX_DEPTH

SMALL = [store(extra_keys=[["a", 1], None]), REMOVE, CLEAR]
FORMS = ["0.9.0", "0.13", "0.23", "0.32"]


def recorded(name: str) -> bytes:
    """The longest payload of a recording."""
    payloads: list[bytes] = [frames(line)[-1] for line in lines(name)]
    return max(payloads, key=len)


@settings(max_examples=500)
@given(payload=st.binary(max_size=300))
def test_any_bytes_are_survived(payload: bytes) -> None:
    survives(payload)
    survives(HEAD + payload)
    survives(HEAD + b"\x91\x9f\xabBlockStored" + payload)
    survives(HEAD + b"\x91\x8f\xa4type\xabBlockStored" + payload)


@settings(max_examples=300)
@given(ts=VALUES, event=VALUES, other=VALUES, rank=VALUES)
def test_any_values_are_survived(ts: bytes, event: bytes, other: bytes, rank: bytes) -> None:
    survives(event)
    survives(array(ts, array(event, other), rank))
    survives(HEAD + array(event, other) + b"\x00")
    survives(HEAD + array(event) + rank)


@settings(max_examples=300)
@given(
    tag=st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared", "Moved"]),
    pairs=st.lists(
        st.tuples(st.sampled_from([*store(), "extra_keys", "x"]).map(msgpack.packb), VALUES)
        | st.tuples(VALUES, VALUES),
        max_size=6,
    ),
)
def test_any_fields_are_survived(tag: str, pairs: list[tuple[bytes, bytes]]) -> None:
    survives(BARE + array(mapping((b"\xa4type", msgpack.packb(tag)), *pairs)))
    survives(BARE + array(array(msgpack.packb(tag), *(value for _key, value in pairs))))


@settings(max_examples=200)
@given(version=ANY_VERSION, events=EVENTS, garbage=st.binary(min_size=1, max_size=40))
def test_garbage_behind_a_batch_is_refused(
    version: str, events: list[WireEvent], garbage: bytes
) -> None:
    with pytest.raises(DecodeError):
        decode_batch(packed(version, 1e9, events, 0) + garbage)


@settings(max_examples=300)
@given(version=ANY_VERSION, events=EVENTS, data=st.data(), garbage=st.binary(max_size=40))
def test_garbage_behind_the_beginning_of_a_batch_is_survived(
    version: str, events: list[WireEvent], data: st.DataObject, garbage: bytes
) -> None:
    payload = packed(version, 1e9, events, 0)
    cut = data.draw(st.integers(0, len(payload)))
    survives(payload[:cut] + garbage)
    survives(payload[:cut] + garbage + payload[cut:])


@pytest.mark.parametrize("version", FORMS)
def test_every_single_changed_byte_of_a_batch_is_survived(version: str) -> None:
    payload = packed(version, 1e9, SMALL, 0)
    outcomes = set()
    for at in range(len(payload)):
        for value in range(256):
            outcomes.add(survives(payload[:at] + bytes([value]) + payload[at + 1 :]))
    assert outcomes == {True, False}


@settings(max_examples=300)
@given(version=ANY_VERSION, events=EVENTS, data=st.data())
def test_any_changed_byte_of_any_batch_is_survived(
    version: str, events: list[WireEvent], data: st.DataObject
) -> None:
    payload = bytearray(packed(version, 1e9, events, 0))
    payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    survives(bytes(payload))


@settings(max_examples=50)
@given(name=st.sampled_from(sorted(path.stem for path in CAPTURES.glob("*.jsonl"))), data=st.data())
def test_any_changed_byte_of_a_recorded_batch_is_survived(name: str, data: st.DataObject) -> None:
    payload = bytearray(recorded(name))
    for at in data.draw(st.lists(st.integers(0, len(payload) - 1), max_size=20)):
        before = payload[at]
        payload[at] = data.draw(st.integers(0, 255))
        survives(bytes(payload))
        payload[at] = before


@pytest.mark.parametrize("version", FORMS)
def test_a_batch_cut_anywhere_is_refused(version: str) -> None:
    payload = packed(version, 1e9, SMALL, 0)
    assert survives(payload)
    assert not any(survives(payload[:cut]) for cut in range(len(payload)))


@pytest.mark.parametrize("name", ["warm", "lora", "hybrid", "synthetic-vllm-0.18.0"])
def test_a_recorded_batch_cut_anywhere_is_refused(name: str) -> None:
    payload = recorded(name)
    assert survives(payload)
    assert not any(survives(payload[:cut]) for cut in range(len(payload)))


PROMISES = {
    "batch": b"\xdd\xff\xff\xff\xff",
    "events": HEAD + b"\xdd\xff\xff\xff\xff",
    "array event": HEAD + b"\x91\xdd\xff\xff\xff\xff\xabBlockStored",
    "map event": HEAD + b"\x91\xdf\xff\xff\xff\xff\xa4type\xabBlockStored",
    "hashes": HEAD + b"\x91\x92\xacBlockRemoved\xdd\xff\xff\xff\xff\x01",
    "hash": HEAD + b"\x91\x92\xacBlockRemoved\x91\xc6\xff\xff\xff\xff\x01",
    "tokens": HEAD + b"\x91\x94\xabBlockStored\x90\xc0\xdd\xff\xff\xff\xff\x01",
    "tokens of a map": HEAD + b"\x91\x82\xa4type\xabBlockStored\xa9token_ids\xdd\xff\xff\xff\xff",
    "medium": HEAD + b"\x91\x93\xacBlockRemoved\x90\xdb\xff\xff\xff\xffGPU",
    "extension": HEAD + b"\x91\x92\xa1x\xc9\xff\xff\xff\xff\x05",
    "array of an unknown event": HEAD + b"\x91\x92\xa1x\xdd\xff\xff\xff\xff",
    "map of an unknown event": HEAD + b"\x91\x92\xa1x\xdf\xff\xff\xff\xff",
    "key": HEAD + b"\x91\x82\xa4type\xa1x\xdd\xff\xff\xff\xff",
}


@pytest.mark.parametrize("payload", PROMISES.values(), ids=list(PROMISES))
def test_a_promised_length_reserves_no_memory(payload: bytes) -> None:
    survives(payload)  # what is imported or cached on the way is not counted
    tracemalloc.start()
    try:
        assert not survives(payload)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def in_arrays(depth: int) -> bytes:
    return b"\x91" * depth + b"\x01"


def in_maps(depth: int) -> bytes:
    return b"\x81\xa1k" * depth + b"\x01"


STORED = b"\xa4type\xabBlockStored\xacblock_hashes\x90"
PLACES = {
    "batch": lambda deep: deep,
    "events": lambda deep: HEAD + deep,
    "event": lambda deep: HEAD + b"\x91" + deep,
    "hashes": lambda deep: HEAD + b"\x91\x92\xacBlockRemoved" + deep + b"\x00",
    "extra keys": lambda deep: HEAD + b"\x91\x83" + STORED + b"\xaaextra_keys" + deep + b"\x00",
    "lookahead": lambda deep: (
        HEAD + b"\x91\x83" + STORED + b"\xb3lookahead_token_ids" + deep + b"\x00"
    ),
    "unknown field": lambda deep: HEAD + b"\x91\x83" + STORED + b"\xa1x" + deep + b"\x00",
    "unknown event": lambda deep: HEAD + b"\x91\x92\xa1x" + deep + b"\x00",
    "key": lambda deep: HEAD + b"\x91\x82\xa4type\xa1x" + deep + b"\x01\x00",
    "key inside": lambda deep: HEAD + b"\x91\x92\xa1x\x81" + deep + b"\x01\x00",
    "rank": lambda deep: HEAD + b"\x90" + deep,
}


@pytest.mark.parametrize("place", PLACES.values(), ids=list(PLACES))
@pytest.mark.parametrize("nested", [in_arrays, in_maps])
def test_nesting_of_any_depth_is_survived_and_never_deep(place: Any, nested: Any) -> None:
    """Every depth up to the interpreter's own limit, where it is reached anywhere on the way."""
    for depth in [*range(1, 1100), 1_000_000]:
        decoded = survives(place(nested(depth)))
        assert not (decoded and depth > MAX_DEPTH + 1)


@pytest.mark.parametrize(
    "place", ["extra keys", "lookahead", "unknown field", "unknown event", "key"]
)
def test_what_is_nested_too_deeply_is_refused_in_these_words(place: str) -> None:
    assert survives(PLACES[place](in_arrays(8)))
    with pytest.raises(DecodeError, match=r"event 0.*nested too deeply") as caught:
        decode_batch(PLACES[place](in_arrays(100)))
    assert caught.value.event == 0


def test_extra_keys_of_images_nest_as_deep_as_vllm_needs() -> None:
    keys = [["lora", ["image-1", 17], "salt"], None]
    (event,) = decode_batch(msgpack.packb([1.0, [store(extra_keys=keys)], 0])).events
    assert isinstance(event, BlockStored)
    assert event.extra_keys == keys


@pytest.mark.parametrize(
    "event",
    [
        mapping((b"\xa4type", b"\xa1\xff")),
        mapping((b"\xa4type", b"\xacBlockRemoved"), (b"\xa1\xff", b"\x01")),
        mapping((b"\xa4type", b"\xacBlockRemoved"), (b"\xacblock_hashes", b"\x91\xa1\xff")),
        array(b"\xacBlockRemoved", b"\x91\x01", b"\xa3GP\xff"),
        array(b"\xacBlockRemoved", b"\x91\x01", b"\xa3\xed\xa0\x80"),  # half a surrogate pair
        array(b"\xa1x", b"\xa2\xc0\x80"),  # an overlong NUL
    ],
)
def test_text_that_is_not_utf_8_is_refused(event: bytes) -> None:
    with pytest.raises(DecodeError, match=r"(?i)event 1.*utf-8"):
        decode_batch(BARE + array(b"\x91\xb0AllBlocksCleared", event))


@pytest.mark.parametrize("ext", [b"\xd4\x05x", b"\xc7\x00\x05", b"\xd6\xff\x00\x00\x00\x07"])
def test_extensions_are_kept_where_anything_may_stand_and_refused_elsewhere(ext: bytes) -> None:
    (event,) = decode_batch(BARE + array(array(b"\xa1x", ext))).events
    assert isinstance(event, UnknownEvent)
    check_batch(decode_batch(BARE + array(array(b"\xa1x", ext))))
    for fields in (b"\x91" + ext, b"\x91\x01" + ext, ext):
        assert not survives(BARE + array(b"\x93\xacBlockRemoved" + fields + b"\x01"))


@pytest.mark.parametrize("data", [b"\xff" * 12, b"\x3b\x9a\xca\x00" + bytes(8), b"\x7f" * 12])
def test_times_beyond_any_calendar_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="event 0"):
        decode_batch(BARE + array(array(b"\xa1x", b"\xc7\x0c\xff" + data)))


@pytest.mark.parametrize(
    "head",
    [
        b"\x92\xcb" + bytes(8),
        b"\x93\xca" + bytes(4),
        b"\xdc\x00\x02\x00",
        b"\xdd\x00\x00\x00\x02\xcf" + bytes(8),
    ],
)
def test_a_batch_of_millions_of_nothings_is_refused_before_it_is_built(head: bytes) -> None:
    """64 MiB of nil were 3.7 GB of Python objects."""
    count = 60_000_000
    payload = head + b"\xdd" + count.to_bytes(4, "big") + b"\xc0" * 1000
    tracemalloc.start()
    with pytest.raises(DecodeError, match="60,000,000 events is over the limit"):
        decode_batch(payload)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_the_most_events_there_may_be_are_decoded() -> None:
    event = msgpack.packb(["AllBlocksCleared"])
    many = b"\xdd" + (100_000).to_bytes(4, "big") + event * 100_000
    assert len(decode_batch(b"\x92\xcb" + bytes(8) + many).events) == 100_000
