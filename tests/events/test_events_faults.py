"""Faults are named: which event, which field, which pod, which seq."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import msgpack
import pytest
from event_forms import (
    ANY_VERSION,
    CLEAR,
    EVENTS,
    REMOVE,
    VERSIONS,
    WireEvent,
    field_names,
    store,
    stored_events,
    wire_object,
)
from hypothesis import given, settings

from kvctl.errors import KvctlError
from kvctl.events import DecodeError, Undecodable, WireBatch, decode_batch, decode_record


def fault(payload: bytes) -> DecodeError:
    with pytest.raises(DecodeError) as caught:
        decode_batch(payload)
    return caught.value


NO_TEXT: list[Any] = [5, 1.5, True, b"x", [], {}]
NO_INT: list[Any] = ["5", 1.0, True, b"x", [], {}]
NO_LIST: list[Any] = [5, 1.5, True, "x", b"x", {"a": 1}]
NO_HASH: list[Any] = ["x", 1.0, False, [], {}]
WRONG: dict[str, list[Any]] = {
    "block_hashes": [*NO_LIST, None],
    "parent_block_hash": NO_HASH,
    "token_ids": [*NO_LIST, None],
    "block_size": [*NO_INT, None],
    "lora_id": NO_INT,
    "medium": NO_TEXT,
    "lora_name": NO_TEXT,
    "extra_keys": NO_LIST,
    "group_idx": NO_INT,
    "kv_cache_spec_kind": NO_TEXT,
    "kv_cache_spec_sliding_window": NO_INT,
    "locality": NO_TEXT,
    "ownership": NO_TEXT,
    "session_id": NO_TEXT,
}
"""Values that no version gives a field."""
WRONG_ITEM: dict[str, list[Any]] = {
    "block_hashes": [*NO_HASH, None],
    "token_ids": [*NO_INT, None],
    "extra_keys": NO_LIST,
}
"""Values that no version puts into a field's list."""


@settings(max_examples=300)
@given(data=st.data(), version=ANY_VERSION, before=EVENTS, event=stored_events(), after=EVENTS)
def test_a_planted_fault_is_named_with_its_event_and_field(
    data: st.DataObject,
    version: str,
    before: list[WireEvent],
    event: WireEvent,
    after: list[WireEvent],
) -> None:
    sent = [name for name in field_names(version, "BlockStored") if name in WRONG]
    field = data.draw(st.sampled_from(sent))
    path = field
    if field in WRONG_ITEM and data.draw(st.booleans()):
        items = list(event[field] or [])
        at = data.draw(st.integers(0, len(items)))
        items.insert(at, data.draw(st.sampled_from(WRONG_ITEM[field])))
        event = event | {field: items}
        path = f"{field}[{at}]"
    else:
        event = event | {field: data.draw(st.sampled_from(WRONG[field]))}
    wire: list[Any] = [wire_object(version, each) for each in [*before, event, *after]]
    if event[field] is None and VERSIONS[version][0]:  # left out of a map it would be absent
        wire[len(before)][field] = None
    payload = msgpack.packb([1.0, wire, 0])
    error = fault(payload)
    assert (error.event, error.field) == (len(before), path)
    assert error.detail == f"event {len(before)}, field {path}: {error.reason}"
    wire_batch = WireBatch(0, "ns/pod-a", 0, b"", 7, payload)
    assert decode_record(wire_batch) == Undecodable(wire_batch, error.detail)


@pytest.mark.parametrize(
    ("changed", "field", "reason"),
    [
        ({"token_ids": [1, 2, "x", 4]}, "token_ids[2]", "expected `int`, got `str`"),
        ({"block_hashes": [1, 2.5]}, "block_hashes[1]", "expected `int | bytes`, got `float`"),
        ({"parent_block_hash": "x"}, "parent_block_hash", "got `str`"),
        ({"block_size": 0}, "block_size", "block size 0 with 4 tokens"),
        ({"block_size": -2}, "block_size", "block size -2 with 4 tokens"),
        ({"block_size": -2, "token_ids": []}, "block_size", "block size -2"),
        ({"block_size": 3}, "token_ids", "4 tokens are no whole number of blocks of 3"),
        ({"block_size": 8}, "token_ids", "4 tokens are no whole number of blocks of 8"),
        ({"block_hashes": [1, 2, 3]}, "block_hashes", "3 hashes for 2 blocks of tokens"),
    ],
)
@pytest.mark.parametrize("version", ["0.9.0", "0.19", "0.32"])
@pytest.mark.parametrize("among", [[], [["Moved", 1]]])
def test_a_fault_is_told_in_words(
    changed: dict[str, Any], field: str, reason: str, version: str, among: list[Any]
) -> None:
    wire = [wire_object(version, CLEAR), *among, wire_object(version, store(**changed))]
    error = fault(msgpack.packb([1.0, wire, 0]))
    assert (error.event, error.field) == (len(wire) - 1, field)
    assert reason in error.reason


def test_the_first_of_several_faults_is_named() -> None:
    bad = [REMOVE, store(block_size=0), REMOVE | {"medium": 5}]
    assert fault(msgpack.packb([1.0, bad, 0])).event == 2  # types come before lengths
    assert fault(msgpack.packb([1.0, [*bad[:2], store(block_size=0)], 0])).event == 1


@pytest.mark.parametrize("event", [["BlockRemoved"], {"type": "BlockStored", "block_size": 4}])
def test_an_event_without_hashes_is_refused(event: object) -> None:
    error = fault(msgpack.packb([1.0, [CLEAR, event], 0]))
    assert error.event == 1
    assert "missing required field `block_hashes`" in error.reason


@pytest.mark.parametrize(
    ("value", "event", "field", "reason"),
    [
        (5, None, "", "expected `array`, got `int`"),
        ({"ts": 1.0}, None, "", "expected `array`, got `object`"),
        ([1.0], None, "", "at least length 2"),
        (["x", []], None, "ts", "expected `float`, got `str`"),
        ([True, []], None, "ts", "got `bool`"),
        ([None, []], None, "ts", "expected `float`"),
        ([float("nan"), []], None, "ts", "the timestamp is nan"),
        ([float("inf"), [CLEAR]], None, "ts", "the timestamp is inf"),
        ([float("-inf"), [["AllBlocksCleared"]]], None, "ts", "the timestamp is -inf"),
        ([1.0, 5], None, "events", "expected `array`, got `int`"),
        ([1.0, None], None, "events", "expected `array`"),
        ([1.0, [CLEAR, 5]], 1, "", "an event is an array or a map, not int"),
        ([1.0, [None]], 0, "", "an array or a map, not NoneType"),
        ([1.0, [[]]], 0, "", "the event has no type"),
        ([1.0, [{}]], 0, "", "the event has no type"),
        ([1.0, [{"block_hashes": [1]}]], 0, "", "the event has no type"),
        ([1.0, [{"type": 5}]], 0, "", "the event has no type"),
        ([1.0, [[b"BlockRemoved", [1]]]], 0, "", "the event has no type"),
        ([1.0, [], -1], None, "data_parallel_rank", "-1 is no rank"),
        ([1.0, [], 2**31], None, "data_parallel_rank", "2147483648 is no rank"),
        ([1.0, [], "x"], None, "data_parallel_rank", "expected `int | null`, got `str`"),
        ([1.0, [], 0.0], None, "data_parallel_rank", "got `float`"),
    ],
)
def test_what_is_no_batch_is_refused(
    value: object, event: int | None, field: str, reason: str
) -> None:
    error = fault(msgpack.packb(value))
    assert (error.event, error.field) == (event, field)
    assert reason in error.reason


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"Hello", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_bytes_that_are_no_msgpack_are_refused(payload: bytes) -> None:
    error = fault(payload)
    assert error.reason.startswith("not a batch of KV events: ")
    assert (error.event, error.field) == (None, "")


def test_an_error_says_only_what_it_knows() -> None:
    assert str(DecodeError("odd")) == "odd"
    assert str(DecodeError("odd", field="ts")) == "field ts: odd"
    assert str(DecodeError("odd", event=0)) == "event 0: odd"


def test_an_error_keeps_its_parts() -> None:
    error = DecodeError("odd", event=3, field="medium")
    assert (error.event, error.field, error.reason) == (3, "medium", "odd")
    assert error.detail == "event 3, field medium: odd"
    assert isinstance(error, KvctlError)
