"""Recordings of real engines, and of the struct definitions of old ones, against msgpack alone."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from event_forms import WireEvent, field_names
from event_shape import check_batch, told
from recordings import CAPTURES, frames, lines, wire_batches

from kvctl.events import (
    AllBlocksCleared,
    Batch,
    BlockHash,
    BlockRemoved,
    BlockStored,
    EventBatch,
    decode_batch,
    decode_record,
)

RECORDINGS = sorted(path.stem for path in CAPTURES.glob("*.jsonl"))
ARRAYS = {
    "synthetic-vllm-0.9.1": "0.9.1",
    "synthetic-vllm-0.11.0": "0.10.2",
    "synthetic-vllm-0.18.0": "0.17",
    "synthetic-replay-3frames": "0.10.2",
}
"""The recordings whose events are arrays, with the version their form came with."""


def fields_of(event: list[Any] | WireEvent, name: str) -> WireEvent:
    """An event of a recording as msgpack reads it, its fields named."""
    if isinstance(event, dict):
        return event
    tag, *values = event
    return {"type": tag} | dict(zip(field_names(ARRAYS[name], tag), values, strict=True))


def payloads(name: str) -> list[bytes]:
    return [payload for line in lines(name) if (payload := frames(line)[-1])]


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_decodes_to_what_msgpack_alone_reads(name: str) -> None:
    for payload in payloads(name):
        ts, events, rank = msgpack.unpackb(payload)
        batch = decode_batch(payload)
        check_batch(batch)
        assert (batch.ts, batch.data_parallel_rank) == (ts, rank)
        for event, decoded in zip(events, batch.events, strict=True):
            fields = fields_of(event, name)
            assert told(decoded) == {k: v for k, v in fields.items() if v is not None}


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_batch_of_a_recording_makes_a_record(name: str) -> None:
    wires = wire_batches(name)
    assert len(wires) == len(payloads(name)) > 0
    assert {type(decode_record(wire)) for wire in wires} == {Batch}


HASHES: list[BlockHash] = [11400714819323198485, 4354685564936845354, 15755400384260043839]


def test_a_store_of_vllm_0_9_1() -> None:
    first, second, third, removes, last = map(decode_batch, payloads("synthetic-vllm-0.9.1"))
    assert first == EventBatch(
        1764000000.0, [BlockStored(HASHES, None, list(range(100, 148)), 16)], 0
    )
    assert second.events == [
        BlockStored([8709371129873690708], HASHES[-1], list(range(200, 216)), 16)
    ]
    assert third.events == [
        BlockStored(
            [14727398570297873639, 7681369315911520508], None, list(range(100, 132)), 16, lora_id=7
        )
    ]
    assert removes.events == [BlockRemoved([8709371129873690708]), BlockRemoved([HASHES[-1]])]
    assert last.events == [
        AllBlocksCleared(),
        BlockStored(HASHES[:1], None, list(range(100, 116)), 16),
    ]


def test_a_store_and_removes_of_vllm_0_11_with_hashes_of_32_bytes() -> None:
    _first, second, _third, removes, _last = map(decode_batch, payloads("synthetic-vllm-0.11.0"))
    stored, parent = bytes.fromhex("78dde6e5fd29f054") * 4, bytes.fromhex("daa66d2c7ddf743f") * 4
    assert second == EventBatch(
        1764000001.0,
        [BlockStored([stored], parent, list(range(200, 216)), 16, medium="GPU")],
        0,
    )
    assert removes.events == [
        BlockRemoved([stored], medium="GPU"),
        BlockRemoved([parent], medium="GPU"),
    ]


def lora_store(**newer: object) -> BlockStored:
    return BlockStored(
        [14727398570297873639, 7681369315911520508],
        None,
        list(range(100, 132)),
        16,
        lora_id=7,
        medium="GPU",
        lora_name="sql-adapter",
        extra_keys=[["sql-adapter"], ["sql-adapter"]],
        **newer,  # type: ignore[arg-type]
    )


def test_a_lora_store_of_vllm_0_18() -> None:
    batch = decode_batch(payloads("synthetic-vllm-0.18.0")[2])
    assert batch == EventBatch(1764000002.0, [lora_store()], 0)


def test_a_lora_store_and_removes_of_vllm_0_24() -> None:
    _first, _second, third, removes, _last = map(decode_batch, payloads("synthetic-vllm-0.24.0"))
    assert third == EventBatch(
        1764000002.0, [lora_store(group_idx=0, kv_cache_spec_kind="full_attention")], 0
    )
    assert removes.events == [
        BlockRemoved([8709371129873690708], medium="GPU", group_idx=0),
        BlockRemoved([HASHES[-1]], medium="GPU", group_idx=0),
    ]


def test_a_salted_store_of_a_real_vllm_0_32() -> None:
    batch = decode_batch(payloads("salt")[0])
    assert batch == EventBatch(
        1796108440.1283057,
        [
            BlockStored(
                [14808008918601439136, 1888549333388641362, 11964917554828806428],
                None,
                [10 + 7 * at for at in range(96)],
                32,
                medium="GPU",
                extra_keys=[["tenant-1"], None, None],
                group_idx=0,
                kv_cache_spec_kind="full_attention",
            )
        ],
        0,
    )


def test_a_sliding_window_group_names_fewer_blocks_than_it_has_tokens_for() -> None:
    events = [event for payload in payloads("hybrid") for event in decode_batch(payload).events]
    first = events[0]
    assert isinstance(first, BlockStored)
    assert first.kv_cache_spec_sliding_window == 96
    assert (len(first.block_hashes), len(first.token_ids), first.block_size) == (3, 384, 32)
    assert any(
        isinstance(event, BlockStored) and not event.block_hashes and event.token_ids
        for event in events
    )


def test_a_real_engine_sends_hashes_as_ints_or_as_16_bytes() -> None:
    ints, blobs = decode_batch(payloads("warm")[0]), decode_batch(payloads("lora")[0])
    assert isinstance(ints.events[0], BlockStored)
    assert ints.events[0].block_hashes[0] == 8995634022476464264
    assert isinstance(blobs.events[0], BlockStored)
    assert blobs.events[0].block_hashes[0] == bytes.fromhex("eca164e2c3f955e62aaffc64af538098")


def test_the_rank_is_the_one_in_the_payload() -> None:
    assert {decode_batch(payload).data_parallel_rank for payload in payloads("dp2")} == {0, 1}
