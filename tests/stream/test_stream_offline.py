"""Captures in stream order: recordings of real engines, kvctl's own, and damaged ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recordings import wire_batches
from stream_batches import message, messages, shown

from kvctl.capture import CaptureWriter, open_capture
from kvctl.events import Batch, Gap, Note, Record, Restart, Undecodable, WireBatch, decode_record
from kvctl.stream import order_capture


def gap(first: int, last: int, recovered: bool = False) -> Gap:
    return Gap(10**18, "pod-a", 0, first, last, recovered, "as told")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("warm", {"gaps": [], "restarts": 0, "batches": 4}),
        ("restart", {"gaps": [(0, 1)], "restarts": 1, "batches": 3}),
        ("dp2", {"gaps": [], "restarts": 0, "batches": 10}),
        ("evict", {"gaps": [(0, 7)], "restarts": 0, "batches": 12}),
        ("fleet", {"gaps": [(0, 60), (0, 1)], "restarts": 0, "batches": 70}),
        ("level2", {"gaps": [(0, 55)], "restarts": 0, "batches": 2}),
    ],
)
def test_a_recording_is_put_in_order(name: str, expected: dict[str, Any]) -> None:
    records = list(order_capture(wire_batches(name)))
    assert {
        "gaps": [(each.from_seq, each.to_seq) for each in records if isinstance(each, Gap)],
        "restarts": sum(isinstance(record, Restart) for record in records),
        "batches": sum(isinstance(record, Batch) for record in records),
    } == expected


def test_each_rank_of_a_recording_keeps_its_own_order() -> None:
    records = list(order_capture(wire_batches("dp2")))
    for rank in (0, 1):
        seqs = [
            each.wire.seq for each in records if isinstance(each, Batch) and each.wire.rank == rank
        ]
        assert seqs == list(range(len(seqs)))
        assert seqs


def test_a_capture_of_our_own_is_told_again_as_it_was(tmp_path: Path) -> None:
    """Marks for what only the live stream could know: a restart behind a higher seq."""
    told: list[Record] = [
        message(0),
        Gap(10**18, "pod-a", 0, 1, 2, False, "lost on the way"),
        message(3),
        Gap(10**18, "pod-a", 0, 4, 4, True, "from the replay"),
        message(4),
        Restart(10**18, "pod-a", 0, 4, "the replay holds another batch under seq 4"),
        message(0, 1),
        message(1, 1),
        Note(10**18, "pod-a", None, "connected again"),
        decode_record(WireBatch(2_100 * 10**9, "pod-a", 0, b"kv@a@m", 2, b"junk")),
        message(3, 1),
    ]
    with CaptureWriter(tmp_path / "x.kvcap") as writer:
        for record in told:
            writer.write(record)
    with open_capture(tmp_path / "x.kvcap") as reader:
        assert list(order_capture(reader)) == told


def test_a_capture_out_of_order_is_put_right() -> None:
    batches = [message(seq).wire for seq in (0, 2, 1, 3, 3, 5)]
    records = list(order_capture(batches))
    assert shown(records) == [(0, 0), (0, 1), (0, 2), (0, 3), (4, 4, False), (0, 5)]
    assert not any(isinstance(record, Undecodable) for record in records)


def test_a_missing_batch_is_waited_for_over_some_batches_not_to_the_end() -> None:
    batches = [each.wire for each in messages([0, *range(2, 200)])]
    ordered = order_capture(batches)
    given = [next(ordered) for _ in range(3)]
    assert shown(given) == [(0, 0), (1, 1, False), (0, 2)]
    assert shown(list(ordered)) == [(0, seq) for seq in range(3, 200)]


def test_a_gap_told_by_the_capture_is_not_waited_for() -> None:
    ordered = order_capture([message(0).wire, gap(1, 5), message(6).wire])
    assert shown(list(ordered)) == [(0, 0), (1, 5, False), (0, 6)]


def test_batches_lost_from_the_capture_before_a_told_gap_are_missed_too() -> None:
    ordered = order_capture([message(0).wire, gap(5, 6), message(7).wire])
    assert shown(list(ordered)) == [(0, 0), (1, 4, False), (5, 6, False), (0, 7)]


def test_batches_that_wait_before_a_told_gap_come_before_it() -> None:
    ordered = order_capture([message(0).wire, message(2).wire, gap(3, 4), message(5).wire])
    assert shown(list(ordered)) == [(0, 0), (1, 1, False), (0, 2), (3, 4, False), (0, 5)]


def test_a_told_gap_of_what_was_passed_is_left_out() -> None:
    """As an appended capture has it: the second run began cold where the first had been."""
    ordered = order_capture(
        [each.wire for each in messages(range(4))] + [gap(0, 1), message(4).wire]
    )
    assert shown(list(ordered)) == [(0, seq) for seq in range(5)]


def test_batches_that_wait_when_a_restart_is_told_end_the_old_life() -> None:
    restart = Restart(10**18, "pod-a", 0, 0, "as told")
    ordered = order_capture([message(0).wire, message(2).wire, restart, message(0, 1).wire])
    assert shown(list(ordered)) == [(0, 0), (1, 1, False), (0, 2), "restart", (1, 0)]
