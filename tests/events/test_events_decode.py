"""Decoding: every version's form, what is unknown, and whatever else may come."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import msgpack
import pytest
from event_forms import EVENTS, TIMES, VERSIONS, packed
from hypothesis import given, settings
from recordings import CAPTURES, frames, lines

from kvctl.events import (
    FORMS,
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    DecodeError,
    EventBatch,
    UnknownEvent,
    WireBatch,
    decode_batch,
    decode_record,
    encode_batch,
    event_type,
    wire_form,
)
from kvctl.events.decode import MAX_PAYLOAD

RECORDINGS = sorted(path.stem for path in CAPTURES.glob("*.jsonl"))
KINDS = {
    "BlockStored": BlockStored,
    "BlockRemoved": BlockRemoved,
    "AllBlocksCleared": AllBlocksCleared,
}


def told(event: Any) -> dict[str, Any]:
    """What a decoded event says, without what is absent."""
    assert type(event) in (*KINDS.values(), UnknownEvent)
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    return {"type": event_type(event)} | {k: v for k, v in fields.items() if v is not None}


def expected(event: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """What must come out of an event of which only these fields were sent."""
    sent = {name: event[name] for name in names if event.get(name) is not None}
    base = {"block_hashes": [], "token_ids": [], "block_size": 0}
    if event["type"] == "BlockStored":
        sent = base | sent
    elif event["type"] == "BlockRemoved":
        sent = {"block_hashes": []} | sent
    return {"type": event["type"]} | sent


@settings(max_examples=300)
@given(version=st.sampled_from(sorted(VERSIONS)), ts=TIMES, events=EVENTS, rank=st.integers(0, 7))
def test_a_valid_batch_of_any_version_comes_back(version, ts, events, rank) -> None:
    """Encoded by msgpack from a table written out in the tests."""
    _is_map, stored, removed, elements = VERSIONS[version]
    batch = decode_batch(packed(version, ts, events, rank))
    assert batch.ts == ts
    assert batch.data_parallel_rank == (rank if elements == 3 else None)
    names = {"BlockStored": stored, "BlockRemoved": removed, "AllBlocksCleared": []}
    assert [told(event) for event in batch.events] == [
        expected(event, names[event["type"]]) for event in events
    ]


@settings(max_examples=200)
@given(form=st.sampled_from(FORMS), ts=TIMES, events=EVENTS, rank=st.integers(0, 7))
def test_what_kvctl_encodes_in_any_form_it_decodes(form, ts, events, rank) -> None:
    typed = [
        KINDS[event["type"]](**{k: v for k, v in event.items() if k != "type"}) for event in events
    ]
    batch = decode_batch(encode_batch(EventBatch(ts, typed, rank), form))
    assert [told(event) for event in batch.events] == [
        expected(event, list(form.fields(event["type"]))) for event in events
    ]


@given(version=st.sampled_from(sorted(VERSIONS)), ts=TIMES, events=EVENTS)
def test_kvctl_encodes_as_that_version_does(version, ts, events) -> None:
    is_map = VERSIONS[version][0]
    typed = [
        KINDS[event["type"]](**{k: v for k, v in event.items() if k != "type"}) for event in events
    ]
    ours = msgpack.unpackb(encode_batch(EventBatch(ts, typed, 3), wire_form(version)))
    theirs = msgpack.unpackb(packed(version, ts, events, 3))
    if is_map:  # kvctl, as vLLM, also sends null for the fields without a default
        for event in ours[1]:
            for name in [name for name, value in event.items() if value is None]:
                assert name in VERSIONS["0.14"][1]
                del event[name]
    assert ours == theirs


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_decodes_to_what_msgpack_alone_reads(name: str) -> None:
    for line in lines(name):
        payload = frames(line)[-1]
        if not payload:
            continue
        ts, events, *rank = msgpack.unpackb(payload)
        batch = decode_batch(payload)
        assert (batch.ts, [batch.data_parallel_rank]) == (ts, rank)
        for event, decoded in zip(events, batch.events, strict=True):
            if isinstance(event, list):
                version = {"0.9.1": "0.9.1", "0.11.0": "0.10.2"}.get(
                    name.rsplit("-", 1)[-1], "0.17"
                )
                version = "0.10.2" if name == "synthetic-replay-3frames" else version
                tag, *values = event
                names = VERSIONS[version][1 if tag == "BlockStored" else 2]
                fields = {"type": tag} | dict(zip(names, values, strict=bool(values)))
            else:
                fields = event
            assert told(decoded) == {k: v for k, v in fields.items() if v is not None}


def test_fields_of_newer_versions_are_kept() -> None:
    event = {
        "type": "BlockStored",
        "block_hashes": [1],
        "token_ids": [1],
        "block_size": 1,
        "x": [2],
    }
    (decoded,) = decode_batch(msgpack.packb([1.0, [event], 0])).events
    assert isinstance(decoded, BlockStored)
    assert decoded.unknown == {"x": [2]}
    array = ["BlockStored", [1], None, [1], 1, *[None] * 11, "more", 5]
    (decoded,) = decode_batch(msgpack.packb([1.0, [array], 0])).events
    assert isinstance(decoded, BlockStored)
    assert decoded.unknown == {"field_16": "more", "field_17": 5}


def test_unknown_events_are_kept_among_known_ones() -> None:
    events = [["Moved", 1, "x"], {"type": "Copied", "to": "CPU"}, {"type": "AllBlocksCleared"}]
    decoded = decode_batch(msgpack.packb([1.0, events, 0])).events
    assert decoded[0] == UnknownEvent("Moved", {"field_1": 1, "field_2": "x"})
    assert decoded[1] == UnknownEvent("Copied", {"to": "CPU"})
    assert isinstance(decoded[2], AllBlocksCleared)


def test_arrays_and_maps_may_stand_in_one_batch() -> None:
    events = [
        ["BlockRemoved", [1]],
        {"type": "BlockRemoved", "block_hashes": [2]},
        ["AllBlocksCleared"],
    ]
    decoded = decode_batch(msgpack.packb([1.0, events])).events
    assert [event_type(event) for event in decoded] == [
        "BlockRemoved",
        "BlockRemoved",
        "AllBlocksCleared",
    ]
    assert decoded[1].block_hashes == [2]  # type: ignore[union-attr]


@pytest.mark.parametrize("count", [0, 1, 15, 16, 70_000])
@pytest.mark.parametrize("event", [["AllBlocksCleared"], {"type": "AllBlocksCleared"}])
def test_a_batch_may_hold_any_number_of_events(event: object, count: int) -> None:
    decoded = decode_batch(msgpack.packb([1.5, [event] * count, 0]))
    assert [type(each) for each in decoded.events] == [AllBlocksCleared] * count


def test_times_may_be_ints_and_a_batch_may_grow() -> None:
    batch = decode_batch(msgpack.packb([7, [["AllBlocksCleared"]], 1, "newer"]))
    assert (batch.ts, batch.data_parallel_rank, len(batch.events)) == (7.0, 1, 1)


def store(**changed: Any) -> dict[str, Any]:
    fields = {
        "type": "BlockStored", "block_hashes": [1, 2], "parent_block_hash": None,
        "token_ids": [1, 2, 3, 4], "block_size": 2, "lora_id": None, "medium": "GPU",
        "lora_name": None,
    }  # fmt: skip
    return fields | changed


@pytest.mark.parametrize(
    ("changed", "field", "reason"),
    [
        ({"token_ids": [1, 2, "x", 4]}, "token_ids[2]", "expected `int`, got `str`"),
        ({"block_hashes": [1, 2.5]}, "block_hashes[1]", "got `float`"),
        ({"block_hashes": None}, "block_hashes", "got `null`"),
        ({"parent_block_hash": "x"}, "parent_block_hash", "got `str`"),
        ({"extra_keys": [1, 2]}, "extra_keys[0]", "got `int`"),
        ({"medium": 5}, "medium", "got `int`"),
        ({"block_size": 0}, "block_size", "block size 0 with 4 tokens"),
        ({"block_size": -2, "token_ids": []}, "block_size", "block size -2"),
        ({"block_size": 3}, "token_ids", "no whole number of blocks of 3"),
        ({"block_hashes": [1, 2, 3]}, "block_hashes", "3 hashes for 2 blocks"),
    ],
)
@pytest.mark.parametrize("as_array", [False, True])
def test_a_fault_is_named_with_its_event_and_field(
    changed: dict, field: str, reason: str, as_array: bool
) -> None:
    event: Any = store(**changed)
    if as_array:
        names = VERSIONS["0.17"][1]
        event = ["BlockStored", *(event.get(name) for name in names)]
    payload = msgpack.packb([1.0, [["AllBlocksCleared"], event], 0])
    with pytest.raises(DecodeError) as caught:
        decode_batch(payload)
    error = caught.value
    assert (error.event, error.field) == (1, field)
    assert reason in error.reason
    record = decode_record(WireBatch(0, "pod-a", 0, b"", 7, payload))
    assert record.error == error.detail  # type: ignore[union-attr]
    located = error.located("pod-a", 7)
    assert str(located).startswith(f"pod pod-a, seq 7: event 1, field {field}: ")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (5, "expected `array`, got `int`"),
        ([1.0], "at least length 2"),
        (["x", []], "got `str`"),
        ([float("nan"), []], "timestamp is nan"),
        ([float("inf"), []], "timestamp is inf"),
        ([1.0, 5], "got `int`"),
        ([1.0, [5]], "an array or a map, not int"),
        ([1.0, [[]]], "no type"),
        ([1.0, [{}]], "no type"),
        ([1.0, [{"type": 5}]], "no type"),
        ([1.0, [], -1], "-1 is no rank"),
        ([1.0, [], "x"], "got `str`"),
    ],
)
def test_what_is_no_batch_is_refused(value: object, reason: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_batch(msgpack.packb(value))
    assert reason in str(caught.value)


def test_a_payload_over_the_limit_is_refused_unread() -> None:
    with pytest.raises(DecodeError, match="over the limit"):
        decode_batch(bytes(MAX_PAYLOAD + 1))


@pytest.mark.parametrize(
    "payload",
    [
        b"\xdd\xff\xff\xff\xff",
        b"\x93\xcb" + bytes(8) + b"\xdd\xff\xff\xff\xff",
        b"\x93\xcb" + bytes(8) + b"\x91\x96\xabBlockStored\xdd\x7f\xff\xff\xff",
        b"\x93\xcb"
        + bytes(8)
        + b"\x91\x86\xa4type\xabBlockStored\xacblock_hashes\xdd\x7f\xff\xff\xff",
        b"\x92\x01\xdf\x40\xff\xff\xff",
        b"\x91" * 1_000_000,
        b"\x92\x01\x91" + b"\x91" * 1_000_000,
        b"\x92\x01\x91" + b"\x81\xa1x" * 100_000,
        b"\x92\x01\x91\x81\x91\x01\x02",
        b"\x92\x01\x91\x82\xa4type\xa1\xff\x01\x02",
        b"\x92\x01\x91\x82\xa4type\xa1x\xd6\xff\x00\x00\x00\x00\x02",
    ],
)
def test_hostile_bytes_neither_crash_nor_reserve_what_they_promise(payload: bytes) -> None:
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        decode_batch(payload)
    except DecodeError as error:
        assert str(error)  # noqa: PT017
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 512 * 1024  # KiB


HASH = (int, bytes)


def check_shape(batch: EventBatch) -> None:
    """Every field is of its type, and the lengths fit: an independent reading of the contracts."""
    assert isinstance(batch.ts, float)
    assert abs(batch.ts) < float("inf")
    rank = batch.data_parallel_rank
    assert rank is None or (type(rank) is int and rank >= 0)
    for event in batch.events:
        if isinstance(event, UnknownEvent):
            assert isinstance(event.type, str)
            assert all(isinstance(name, str) for name in event.fields)
            continue
        assert isinstance(event, (BlockStored, BlockRemoved, AllBlocksCleared))
        if isinstance(event, AllBlocksCleared):
            continue
        assert all(type(each) in HASH for each in event.block_hashes)
        assert event.medium is None or isinstance(event.medium, str)
        assert event.group_idx is None or type(event.group_idx) is int
        if isinstance(event, BlockStored):
            assert event.parent_block_hash is None or type(event.parent_block_hash) in HASH
            assert all(type(token) is int for token in event.token_ids)
            assert event.lora_name is None or isinstance(event.lora_name, str)
            for keys in event.extra_keys or []:
                assert keys is None or isinstance(keys, list)
            if event.token_ids:
                assert event.block_size > 0
                assert len(event.token_ids) % event.block_size == 0
                assert len(event.block_hashes) * event.block_size <= len(event.token_ids)
            else:
                assert event.block_size >= 0


def check(payload: bytes) -> None:
    try:
        batch = decode_batch(payload)
    except DecodeError:
        return
    check_shape(batch)


@settings(max_examples=500)
@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_else(payload: bytes) -> None:
    check(payload)
    check(b"\x93\xcb" + bytes(8) + payload)


OBJECTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats()
    | st.binary(max_size=9) | st.text(max_size=9)
    | st.sampled_from(["type", "BlockStored", "BlockRemoved", "block_hashes", "token_ids"]),
    lambda inner: st.lists(inner, max_size=6)
    | st.dictionaries(st.text(max_size=9) | st.sampled_from(["type", "block_hashes"]), inner),
    max_leaves=30,
)  # fmt: skip


@settings(max_examples=500)
@given(OBJECTS, st.lists(OBJECTS, max_size=3), OBJECTS)
def test_no_objects_raise_anything_else(ts: object, events: list, rank: object) -> None:
    check(msgpack.packb([ts, events, rank]))
    check(msgpack.packb([1.0, events, 0]))
    check(msgpack.packb([1.0, [{"type": "BlockStored", "block_hashes": e} for e in events], 0]))
    check(msgpack.packb([1.0, [["BlockStored", *events]], 0]))


@settings(max_examples=150)
@given(version=st.sampled_from(sorted(VERSIONS)), events=EVENTS, data=st.data())
def test_a_batch_with_one_byte_changed_keeps_its_shape_or_is_refused(version, events, data) -> None:
    payload = bytearray(packed(version, 1e9, events, 0))
    at = data.draw(st.integers(0, len(payload) - 1))
    payload[at] = data.draw(st.integers(0, 255))
    check(bytes(payload))


@pytest.mark.parametrize("version", ["0.9.1", "0.18", "0.32"])
def test_every_single_changed_byte_of_a_batch_is_survived(version: str) -> None:
    version = "0.19" if version == "0.18" else version
    events = [store(), {"type": "BlockRemoved", "block_hashes": [1]}, {"type": "AllBlocksCleared"}]
    payload = packed(version, 1e9, events, 0)
    for at in range(len(payload)):
        for value in range(256):
            changed = bytearray(payload)
            changed[at] = value
            check(bytes(changed))


@pytest.mark.parametrize("name", ["warm", "lora", "synthetic-vllm-0.18.0"])
def test_a_batch_cut_anywhere_is_refused(name: str) -> None:
    payload = frames(lines(name)[0])[-1]
    for cut in range(len(payload)):
        with pytest.raises(DecodeError):
            decode_batch(payload[:cut])
