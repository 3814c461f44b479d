"""The replay over real sockets: whole, cut, lossy, garbled, silent."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest
from hostile import Hostile, payload
from stream_collected import PATIENCE, Collected, read, source

from kvctl.events import Batch, Gap, Note, position_of
from kvctl.stream import StreamReader


@pytest.mark.parametrize("topic_frame", [True, False])
def test_the_replay_comes_first_then_the_live_batches(stack: ExitStack, topic_frame: bool) -> None:
    hostile = stack.enter_context(Hostile())
    hostile.topic_frame = topic_frame
    for seq in range(5):
        hostile.send(seq)
    got = read(stack, source(hostile))
    got.until(lambda: len(got.seqs()) == 5)
    hostile.wait_for_subscriber()
    for seq in range(5, 10):
        hostile.send(seq)
    got.until(lambda: len(got.seqs()) == 10)
    assert got.seqs() == list(range(10))
    assert got.of(Gap) == []
    assert hostile.requests == [0]
    (status,) = got.reader.statuses()
    assert (status.replay, status.last_seq, status.batches) == ("ok", 9, 10)
    assert got.reader.settled()


def test_batches_sent_while_the_replay_is_read_come_once_and_in_order(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    for seq in range(2000):
        hostile.send(seq)
    got = read(stack, source(hostile))
    hostile.wait_for_subscriber()
    for seq in range(2000, 4000):
        hostile.send(seq)
    got.until(lambda: len(got.seqs()) == 4000)
    assert got.seqs() == list(range(4000))
    assert got.of(Gap) == []


def test_since_seq_is_where_the_replay_begins(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    for seq in range(10):
        hostile.send(seq)
    got = read(stack, source(hostile), since_seq=7)
    got.until(lambda: len(got.seqs()) == 3)
    assert got.seqs() == [7, 8, 9]
    assert got.of(Gap) == []
    assert hostile.requests == [7]


def test_a_reader_goes_on_behind_the_positions_it_is_given(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    for seq in range(10):
        hostile.send(seq)
    first = read(stack, source(hostile))
    first.until(lambda: len(first.seqs()) == 10)
    position = position_of(first.of(Batch)[6])
    got = read(stack, source(hostile), positions={("pod-a", 0): position})
    got.until(lambda: len(got.seqs()) == 3)
    assert got.seqs() == [7, 8, 9]
    assert hostile.requests == [0, 6]
    assert got.of(Gap) == []


def test_without_use_replay_nobody_is_asked(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    hostile.send(0)
    got = read(stack, source(hostile), use_replay=False)
    hostile.wait_for_subscriber()
    hostile.send(1)
    got.until(lambda: got.seqs() == [1])
    assert hostile.requests == []
    assert got.reader.statuses()[0].replay == "none"


def test_what_the_buffer_no_longer_holds_is_a_gap_in_front(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile(buffer=4))
    for seq in range(10):
        hostile.send(seq)
    got = read(stack, source(hostile))
    got.until(lambda: len(got.seqs()) == 4)
    assert got.gaps() == [(0, 5, False)]
    assert isinstance(got.records[0], Gap)
    assert "cold start" in got.records[0].reason
    assert got.reader.statuses()[0].replay == "ok"


def test_an_engine_that_has_published_nothing_yet_is_settled(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    got = read(stack, source(hostile))
    got.until(got.reader.settled)
    assert got.records == []
    assert got.reader.statuses()[0].replay == "ok"


@pytest.mark.parametrize("silent", [True, False])
def test_a_replay_that_fails_costs_the_history_not_the_stream(
    stack: ExitStack, silent: bool
) -> None:
    hostile = stack.enter_context(Hostile())
    hostile.silent = silent
    hostile.end = False
    hostile.send(0, keep=False)
    got = read(stack, source(hostile), replay_timeout=0.3, replay_tries=2)
    hostile.wait_for_subscriber()
    hostile.send(1, keep=False)
    got.until(lambda: got.seqs() == [1])
    assert got.gaps() == [(0, 0, False)]
    assert got.reader.statuses()[0].replay == "silent"
    assert f"no answer from the replay at {hostile.replay}" in got.notes
    assert hostile.requests == [0, 0]


def test_a_replay_nobody_serves_costs_the_history_not_the_stream(stack: ExitStack) -> None:
    hostile, gone = stack.enter_context(Hostile()), Hostile()
    gone.close()
    got = read(stack, source(hostile, replay=gone.replay), replay_timeout=0.3)
    hostile.wait_for_subscriber()
    hostile.send(0)
    got.until(lambda: got.seqs() == [0])
    assert got.reader.statuses()[0].replay == "silent"


def test_a_gap_whose_replay_falls_silent_is_declared_and_the_held_go_on(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    hostile.send(0)
    got = read(stack, source(hostile), replay_timeout=0.3)
    got.until(lambda: got.seqs() == [0])
    hostile.wait_for_subscriber()
    hostile.silent = True
    for seq in (2, 3):
        hostile.send(seq)
    got.until(lambda: got.seqs() == [0, 2, 3])
    assert got.gaps() == [(1, 1, False)]
    assert got.of(Gap)[0].reason == "the replay did not answer"


def test_a_hole_in_the_answer_is_asked_for_again(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    hostile.holes = {3, 7}
    for seq in range(10):
        hostile.send(seq)
    got = read(stack, source(hostile))
    got.until(lambda: len(got.seqs()) == 10)
    assert got.seqs() == list(range(10))
    assert got.of(Gap) == []
    assert hostile.requests == [0, 3]


def test_a_hole_that_the_buffer_cannot_fill_is_declared(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    for seq in range(10):
        hostile.send(seq, keep=seq != 3)
    got = read(stack, source(hostile))
    got.until(lambda: len(got.seqs()) == 9)
    assert got.gaps() == [(3, 3, False)]
    assert hostile.requests == [0, 3, 3, 3]
    assert got.reader.statuses()[0].replay == "incomplete"


def test_a_missing_end_marker_is_asked_for_again(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    hostile.end = False
    for seq in range(10):
        hostile.send(seq)
    got = read(stack, source(hostile))
    got.until(lambda: len(hostile.requests) >= 2)
    hostile.end = True
    got.until(lambda: len(got.seqs()) == 10)
    assert got.reader.statuses()[0].replay == "ok"


def test_an_answer_that_never_has_its_end_is_taken_as_it_is(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    hostile.end = False
    for seq in range(10):
        hostile.send(seq)
    got = read(stack, source(hostile), replay_timeout=0.3)
    got.until(lambda: len(got.seqs()) == 10)
    assert got.seqs() == list(range(10))
    assert got.of(Gap) == []
    assert hostile.requests == [0, 10, 10]
    assert got.reader.statuses()[0].replay == "incomplete"


def test_an_answer_without_end_does_not_hold_up_a_busy_stream_for_ever(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    hostile.end = False
    hostile.send(0)
    got = read(stack, source(hostile), replay_timeout=0.3)
    stopping = threading.Event()

    def publish() -> None:
        seq = 1
        while not stopping.wait(0.02):
            hostile.send(seq)
            seq += 1

    thread = threading.Thread(target=publish)
    thread.start()
    stack.callback(thread.join)
    stack.callback(stopping.set)
    got.until(lambda: len(got.seqs()) >= 50)
    assert got.seqs() == list(range(len(got.seqs())))


def test_garbled_answers_are_noted_and_the_others_count(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    hostile.garbled = [[b"alone"], [b"", b"topic", b"short", b"x"], [b""] * 6]
    hostile.send(0)
    hostile.send(1, b"junk")
    got = read(stack, source(hostile))
    got.until(lambda: len(got.seqs()) == 2)
    for text in ("a replay answer of 1 frames", "a seq frame of 5 bytes", "of 6 frames"):
        assert text in got.notes
    assert len(got.of(Note)) == 3


def test_a_lossy_replay_of_10_000_batches_is_whole_though_the_caller_is_busy(
    stack: ExitStack,
) -> None:
    """As vLLM's own: a ROUTER that drops what its queue does not take, the end marker too."""
    hostile = stack.enter_context(Hostile(lossy=True))
    many = range(3_000)  # a batch is more than a socket takes: the queue fills at once
    for seq in range(10_000):
        hostile.send(seq, payload(1000.0 + seq, *many))
    runs = 0
    while not hostile.dropped:  # a run in which nothing was lost shows nothing
        assert (runs := runs + 1) < 20
        with StreamReader([source(hostile)]) as reader:
            got = Collected(reader)
            while len(got.records) < 10_000:
                records = reader.read(PATIENCE)
                assert records
                got.records += records
                for _ in got.records[-200:]:
                    sum(range(20_000))  # a busy index: it holds the interpreter
        assert got.seqs() == list(range(10_000))
        assert got.of(Gap) == []
    assert len(hostile.requests) > runs


def test_live_batches_during_a_lossy_replay_wait_for_their_turn(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile(lossy=True))
    for seq in range(5_000):
        hostile.send(seq, payload(1000.0 + seq, *range(400)))
    got = read(stack, source(hostile))
    hostile.wait_for_subscriber()
    for seq in range(5_000, 6_000):
        hostile.send(seq)
    got.until(lambda: len(got.seqs()) >= 6_000)
    assert got.seqs() == list(range(6_000))
    assert got.of(Gap) == []
