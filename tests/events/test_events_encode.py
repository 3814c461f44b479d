"""Encoding: bytes as a chosen vLLM version writes them."""

from __future__ import annotations

import hypothesis.strategies as st
import msgpack
import pytest
from event_forms import ANY_VERSION, EVENTS, RANKS, TIMES, WireEvent, packed
from event_shape import expected, told, typed
from hypothesis import given, settings

from kvctl.events import (
    FORMS,
    AllBlocksCleared,
    BlockStored,
    EventBatch,
    UnknownEvent,
    WireForm,
    decode_batch,
    encode_batch,
    wire_form,
)


@settings(max_examples=200)
@given(version=ANY_VERSION, ts=TIMES, events=EVENTS, rank=RANKS)
def test_a_batch_is_encoded_byte_for_byte_as_that_version_does(
    version: str, ts: float, events: list[WireEvent], rank: int
) -> None:
    batch = EventBatch(ts, [typed(event) for event in events], rank)
    assert encode_batch(batch, wire_form(version)) == packed(version, ts, events, rank)


@settings(max_examples=200)
@given(form=st.sampled_from(FORMS), ts=TIMES, events=EVENTS, rank=st.none() | RANKS)
def test_what_is_encoded_in_a_form_decodes_to_the_fields_the_form_has(
    form: WireForm, ts: float, events: list[WireEvent], rank: int | None
) -> None:
    batch = decode_batch(encode_batch(EventBatch(ts, [typed(e) for e in events], rank), form))
    assert (batch.ts, batch.data_parallel_rank) == (ts, rank if form.rank else None)
    assert [told(event) for event in batch.events] == [
        expected(event, list(form.fields(event["type"]))) for event in events
    ]


@given(events=EVENTS, rank=st.none() | RANKS)
def test_the_newest_form_which_is_the_default_loses_nothing(
    events: list[WireEvent], rank: int | None
) -> None:
    batch = EventBatch(1.0, [typed(event) for event in events], rank)
    assert decode_batch(encode_batch(batch)) == batch


@pytest.mark.parametrize(
    ("version", "wire"),
    [("0.18", ["Moved", "CPU", None]), ("0.32", {"type": "Moved", "to": "CPU"})],
)
def test_an_unknown_event_is_encoded_in_the_form_asked_for(version: str, wire: object) -> None:
    event = UnknownEvent("Moved", {"to": "CPU", "why": None})
    payload = encode_batch(EventBatch(1.0, [event], 0), wire_form(version))
    assert msgpack.unpackb(payload) == [1.0, [wire], 0]


def test_fields_that_kvctl_does_not_know_are_left_out() -> None:
    stored = BlockStored([1], None, [1], 1, unknown={"hue": "red"})
    payload = encode_batch(EventBatch(1.0, [stored, AllBlocksCleared()], 0))
    assert decode_batch(payload).events == [
        BlockStored([1], None, [1], 1),
        AllBlocksCleared(),
    ]
