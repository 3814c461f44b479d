"""Records: a message becomes the batch it holds, or the reason why it does not."""

from __future__ import annotations

import msgpack
import pytest
from event_forms import CLEAR, store

from kvctl.events import (
    AllBlocksCleared,
    Batch,
    EventBatch,
    Gap,
    Note,
    Record,
    Restart,
    Undecodable,
    WireBatch,
    decode_record,
    stream_of,
)


def message(payload: bytes, *, rank: int = 2) -> WireBatch:
    return WireBatch(1, "pod-a", rank, b"topic", 9, payload)


def clear_of(*rank: int | None) -> bytes:
    payload: bytes = msgpack.packb([1.5, [CLEAR], *rank])
    return payload


def test_a_message_becomes_its_batch() -> None:
    wire = message(clear_of(5))
    assert decode_record(wire) == Batch(wire, EventBatch(1.5, [AllBlocksCleared()], 5))


def test_the_rank_of_the_payload_counts_only_where_it_is_asked_for() -> None:
    payload = clear_of(5)
    assert decode_record(message(payload)).wire.rank == 2
    named = decode_record(message(payload), rank_from_payload=True)
    assert named.wire == message(payload, rank=5)


@pytest.mark.parametrize("payload", [clear_of(), clear_of(None)])
def test_without_a_rank_in_the_payload_the_port_decides(payload: bytes) -> None:
    assert decode_record(message(payload), rank_from_payload=True).wire == message(payload)


def test_an_undecodable_message_keeps_its_bytes_and_says_why() -> None:
    wire = message(msgpack.packb([1.0, [CLEAR, store(block_size=0)], 5]))
    record = decode_record(wire, rank_from_payload=True)
    reason = "event 1, field block_size: block size 0 with 4 tokens"
    assert record == Undecodable(wire, reason)
    empty = decode_record(message(b""))
    assert isinstance(empty, Undecodable)
    assert "truncated" in empty.error


@pytest.mark.parametrize(("first", "last", "missing"), [(3, 5, 3), (7, 7, 1), (0, 9_999, 10_000)])
def test_a_gap_counts_both_its_ends(first: int, last: int, missing: int) -> None:
    assert Gap(0, "pod-a", 0, first, last, False).missing == missing


@pytest.mark.parametrize(
    ("record", "stream"),
    [
        (Batch(message(b""), EventBatch(1.0, [], 7)), ("pod-a", 2)),
        (Undecodable(message(b""), "junk"), ("pod-a", 2)),
        (Gap(0, "pod-b", 1, 3, 5, False), ("pod-b", 1)),
        (Restart(0, "pod-b", 0, None, "seq 0"), ("pod-b", 0)),
        (Note(0, "pod-c", 3, "text"), ("pod-c", 3)),
        (Note(0, "pod-c", None, "text"), ("pod-c", None)),
    ],
)
def test_a_record_belongs_to_one_stream(record: Record, stream: tuple[str, int | None]) -> None:
    assert stream_of(record) == stream
