"""Order without sockets: whatever a wire does to the batches, each comes once, or is missed."""

from __future__ import annotations

import random
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hostile import payload
from hypothesis import given, settings
from recordings import wire_batches

from kvctl.capture import CaptureWriter, open_capture
from kvctl.events import Batch, Gap, Note, Record, Restart, Undecodable, WireBatch, decode_record
from kvctl.stream import Sequencer, order_capture


def message(seq: int, life: int = 0, *hashes: int | bytes, topic: bytes = b"kv@a@m"):
    ts = 1000.0 * (life + 1) + seq
    data = payload(ts, *(hashes or (seq,)))
    return decode_record(WireBatch(int(ts * 1e9), "pod-a", 0, topic, seq, data))


def shown(records: list[Record]) -> list[object]:
    """Batches as (life, seq), gaps as (from, to, recovered), restarts as a word."""
    out: list[object] = []
    for record in records:
        if isinstance(record, Batch):
            out.append((int(record.events.ts // 1000) - 1, record.wire.seq))
        elif isinstance(record, Gap):
            out.append((record.from_seq, record.to_seq, record.recovered))
        elif isinstance(record, Restart):
            out.append("restart")
    return out


class Wire:
    """An engine of several lives behind a wire that drops, repeats and swaps batches."""

    def __init__(self, seed: int, replay: bool) -> None:
        self.random = random.Random(seed)
        self.sequencer = Sequencer("pod-a", 0, replay=replay, grace=5)
        self.replay = replay
        self.life = 0
        self.fresh = True
        self.buffer: list = []
        self.pipe: list = []
        self.out: list[Record] = []
        self.now = 0.0

    def publish(self, drop: bool, twice: bool) -> None:
        batch = message(len(self.buffer), self.life)
        self.buffer.append(batch)
        if not drop:
            self.pipe += [batch] * (2 if twice else 1)

    def restart(self) -> None:
        self.deliver()
        self.life += 1
        self.buffer = []
        self.fresh = True
        self.sequencer.reconnected()  # a new process is a new connection
        self.settle()

    def deliver(self) -> None:
        """Hand over what is in the pipe, near neighbours swapped, but not a life's first one."""
        pipe, self.pipe = self.pipe, []
        for at in range(1 if self.fresh else 0, len(pipe) - 1):
            if self.random.random() < 0.2:
                pipe[at], pipe[at + 1] = pipe[at + 1], pipe[at]
        self.fresh = self.fresh and not pipe
        for batch in pipe:
            self.now += 1
            self.out += self.sequencer.feed(batch, self.now)
            self.settle()

    def settle(self) -> None:
        self.out += self.sequencer.tick(self.now)
        while self.sequencer.want is not None:
            answer = self.buffer[self.sequencer.want :]
            self.out += self.sequencer.replayed(answer, True, self.now)

    def lives(self) -> list[list[object]]:
        """What came out, a list a life."""
        found: list[list[object]] = [[]]
        for each in shown(self.out):
            if each == "restart":
                found.append([])
            else:
                found[-1].append(each)
        return found


STEPS = st.lists(
    st.sampled_from(["send", "send", "send", "send", "drop", "twice", "restart"]), max_size=60
)


def run(seed: int, steps: list[str], replay: bool) -> Wire:
    wire = Wire(seed, replay)
    wire.settle()
    for number, step in enumerate(steps):
        if step == "restart":
            wire.restart()
        else:
            wire.publish(drop=step == "drop", twice=step == "twice")
        if number % 5 == 4:
            wire.deliver()
    wire.publish(drop=False, twice=False)  # the last one always arrives
    wire.deliver()
    wire.now += 100
    wire.settle()
    wire.out += wire.sequencer.flush()
    return wire


@settings(max_examples=1000)
@given(seed=st.integers(0, 2**32), steps=STEPS)
def test_with_a_replay_every_seq_of_the_last_life_comes_once_in_order(seed, steps) -> None:
    wire = run(seed, steps, replay=True)
    lives = wire.lives()
    batches = [each for each in lives[-1] if len(each) == 2]
    assert batches == [(wire.life, seq) for seq in range(len(wire.buffer))]
    assert all(each[2] for each in lives[-1] if len(each) == 3)
    for life in lives[:-1]:
        seqs = [each[1] for each in life if len(each) == 2]
        assert seqs == sorted(set(seqs))
        assert len({each[0] for each in life if len(each) == 2}) <= 1


@settings(max_examples=1000)
@given(seed=st.integers(0, 2**32), steps=STEPS)
def test_without_a_replay_batches_and_gaps_account_for_every_seq(seed, steps) -> None:
    wire = run(seed, steps, replay=False)
    for life in wire.lives():
        covered: list[int] = []
        for each in life:
            covered += [each[1]] if len(each) == 2 else range(each[0], each[1] + 1)
        assert covered == list(range(len(covered)))
    assert wire.lives()[-1][-1] == (wire.life, len(wire.buffer) - 1)


def test_a_late_batch_of_a_lost_gap_is_dropped_not_applied_behind_newer_ones() -> None:
    sequencer = Sequencer("pod-a", 0, grace=5)
    out = sequencer.feed(message(0), 0) + sequencer.feed(message(2), 1)
    assert shown(out) == [(0, 0)]
    out = sequencer.tick(10)
    assert shown(out) == [(1, 1, False), (0, 2)]
    assert sequencer.feed(message(1), 11) == []
    assert sequencer.late == 1


def test_a_repeated_batch_is_dropped_and_counted() -> None:
    sequencer = Sequencer("pod-a", 0)
    sequencer.feed(message(0), 0)
    sequencer.feed(message(1), 0)
    assert sequencer.feed(message(1), 0) == sequencer.feed(message(0), 0) == []
    assert sequencer.duplicates == 2


def test_another_topic_is_another_life() -> None:
    sequencer = Sequencer("pod-a", 0)
    sequencer.feed(message(0), 0)
    out = sequencer.feed(message(1, 0, topic=b"kv@a@other"), 0)
    assert [type(record) for record in out] == [Restart, Gap, Batch]


def test_an_undecodable_batch_keeps_its_place() -> None:
    sequencer = Sequencer("pod-a", 0)
    sequencer.feed(message(0), 0)
    broken = decode_record(WireBatch(1, "pod-a", 0, b"kv@a@m", 1, b"junk"))
    assert sequencer.feed(broken, 0) == [broken]
    assert shown(sequencer.feed(message(2), 0)) == [(0, 2)]


def test_a_replay_that_ends_before_what_was_seen_is_of_a_new_life() -> None:
    sequencer = Sequencer("pod-a", 0, replay=True)
    sequencer.replayed([message(seq) for seq in range(3)], True, 0)
    sequencer.reconnected()
    assert sequencer.want == 2
    out = sequencer.replayed([], True, 0)
    assert shown(out) == ["restart"]
    assert sequencer.want == 0
    assert shown(sequencer.replayed([message(0, 1)], True, 0)) == [(1, 0)]


def test_a_batch_of_the_old_life_that_was_held_back_is_dropped() -> None:
    sequencer = Sequencer("pod-a", 0, replay=True)
    assert sequencer.feed(message(500, 0), 0) == []
    out = sequencer.replayed([message(seq, 1) for seq in range(3)], True, 0)
    assert shown(out) == [(1, 0), (1, 1), (1, 2)]
    assert sequencer.late == 1


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
def test_a_recording_is_put_in_order(name: str, expected: dict) -> None:
    records = list(order_capture(wire_batches(name)))
    assert {
        "gaps": [(gap.from_seq, gap.to_seq) for gap in records if isinstance(gap, Gap)],
        "restarts": sum(isinstance(record, Restart) for record in records),
        "batches": sum(isinstance(record, Batch) for record in records),
    } == expected


def test_a_capture_of_our_own_is_told_again_as_it_was(tmp_path: Path) -> None:
    """Marks for what only the live stream could know: a restart behind a higher seq."""
    told: list[Record] = [
        message(0),
        Gap(10**18, "pod-a", 0, 1, 2, False, "lost on the way"),
        message(3),
        Gap(10**18, "pod-a", 0, 4, 4, True, "from the replay"),
        message(4),
        Restart(10**18, "pod-a", 0, 4, "the replay holds other batches under the same seqs"),
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
