"""Batches decoded without their tokens: the same batches, for who does not look at them."""

from __future__ import annotations

import hypothesis.strategies as st
import msgpack
import pytest
from event_bytes import HEAD
from event_forms import ANY_VERSION, EVENTS, RANKS, REMOVE, TIMES, WireEvent, packed, store
from hypothesis import given, settings
from msgspec.structs import asdict

from kvctl.events import (
    BlockStored,
    DecodeError,
    Undecodable,
    WireBatch,
    decode_batch,
    decode_record,
    event_type,
)


def shapes(payload: bytes, *, tokens: bool) -> list[tuple[str, object]]:
    """Its events by type and fields, with the tokens left away here if they were not before."""
    told = []
    for event in decode_batch(payload, tokens=tokens).events:
        fields = asdict(event)
        if isinstance(event, BlockStored):
            if tokens:
                fields["token_ids"] = []
            assert fields["token_ids"] == []
        told.append((event_type(event), fields))
    return told


@settings(max_examples=300)
@given(version=ANY_VERSION, ts=TIMES, events=EVENTS, rank=RANKS)
def test_all_but_the_tokens_is_the_same(
    version: str, ts: float, events: list[WireEvent], rank: int
) -> None:
    payload = packed(version, ts, events, rank)
    assert shapes(payload, tokens=False) == shapes(payload, tokens=True)
    whole, untold = decode_batch(payload), decode_batch(payload, tokens=False)
    assert (untold.ts, untold.data_parallel_rank) == (whole.ts, whole.data_parallel_rank)


@settings(max_examples=100)
@given(version=ANY_VERSION, events=EVENTS)
def test_beside_an_unknown_event_too(version: str, events: list[WireEvent]) -> None:
    """Such a batch takes the long way through the decoder."""
    ts, wire, *rank = msgpack.unpackb(packed(version, 1.0, events, 0), strict_map_key=False)
    payload = msgpack.packb([ts, [*wire, ["Moved"]], *rank])
    assert shapes(payload, tokens=False) == shapes(payload, tokens=True)


@settings(max_examples=300)
@given(payload=st.binary() | st.binary().map(lambda tail: HEAD + tail))
def test_garbage_is_refused_and_nothing_else_happens(payload: bytes) -> None:
    try:
        events = decode_batch(payload, tokens=False).events
    except DecodeError:
        return
    assert all(not event.token_ids for event in events if isinstance(event, BlockStored))


@pytest.mark.parametrize("version", ["0.20", "0.33"])
def test_a_batch_cut_anywhere_is_refused(version: str) -> None:
    whole = packed(version, 1.0, [store(), REMOVE], 0)
    decode_batch(whole, tokens=False)
    for length in range(len(whole)):
        with pytest.raises(DecodeError):
            decode_batch(whole[:length], tokens=False)


def test_tokens_that_are_none_are_passed_over() -> None:
    event = {"type": "BlockStored", "block_hashes": [1], "token_ids": "none", "block_size": 4}
    payload = msgpack.packb([1.0, [event], 0])
    with pytest.raises(DecodeError, match="token_ids"):
        decode_batch(payload)
    (stored,) = decode_batch(payload, tokens=False).events
    assert isinstance(stored, BlockStored)
    assert (stored.block_hashes, stored.token_ids) == ([1], [])


def test_what_is_unknown_in_a_map_is_passed_over_and_a_fault_is_named_still() -> None:
    wire = {"type": "BlockStored", "block_hashes": [1], "token_ids": [1], "block_size": 1}
    (stored,) = decode_batch(msgpack.packb([1.0, [wire | {"newer": 1}], 0]), tokens=False).events
    assert isinstance(stored, BlockStored)
    assert stored.unknown is None
    fault = msgpack.packb([1.0, [wire | {"block_size": "x"}], 0])
    with pytest.raises(DecodeError) as raised:
        decode_batch(fault, tokens=False)
    assert (raised.value.event, raised.value.field) == (0, "block_size")


def test_a_record_is_made_without_tokens() -> None:
    wire = WireBatch(1, "pod-a", 0, b"", 7, packed("0.33", 1.0, [store()], 3))
    record = decode_record(wire, rank_from_payload=True, tokens=False)
    assert not isinstance(record, Undecodable)
    assert record.wire.rank == 3
    assert record.wire.payload == wire.payload
    assert [event.token_ids for event in record.events.events] == [[]]  # type: ignore[union-attr]
