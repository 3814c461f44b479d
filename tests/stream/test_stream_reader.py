"""Live streams over real sockets: order, gaps, restarts, ranks, many pods, slow callers."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
import zmq
from hostile import Hostile, payload
from stream_collected import PATIENCE, read, source

from kvctl.events import Batch, Gap, Note, Restart, Undecodable
from kvctl.stream import StreamError, StreamSource


def test_a_batch_lost_on_the_way_is_recovered_before_the_later_ones(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    hostile.send(0)
    got = read(stack, source(hostile))
    got.until(lambda: got.seqs() == [0])
    hostile.wait_for_subscriber()
    hostile.send(1, wire=False)
    hostile.send(2, wire=False)
    hostile.send(3)
    got.until(lambda: len(got.seqs()) == 4)
    assert got.seqs() == [0, 1, 2, 3]
    assert got.gaps() == [(1, 2, True)]
    assert hostile.requests == [0, 0]
    (status,) = got.reader.statuses()
    assert (status.gaps, status.missing, status.recovered) == (0, 0, 2)


def test_what_cannot_be_recovered_is_a_lost_gap(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    hostile.send(0)
    got = read(stack, source(hostile))
    got.until(lambda: got.seqs() == [0])
    hostile.wait_for_subscriber()
    hostile.send(1, wire=False)
    hostile.send(2, wire=False, keep=False)
    hostile.send(3)
    got.until(lambda: len(got.seqs()) == 3)
    assert got.seqs() == [0, 1, 3]
    assert got.gaps() == [(1, 1, True), (2, 2, False)]
    (status,) = got.reader.statuses()
    assert (status.gaps, status.missing, status.recovered) == (1, 1, 1)


def test_without_a_replay_gaps_are_reported_and_the_stream_goes_on(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    got = read(stack, source(hostile, replay=None))
    hostile.wait_for_subscriber()
    for seq in (3, 4, 7):
        hostile.send(seq)
    got.until(lambda: len(got.seqs()) == 3)
    assert got.gaps() == [(0, 2, False), (5, 6, False)]
    assert got.of(Gap)[0].reason == "cold start"


def test_reordered_and_repeated_batches_are_put_right(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    got = read(stack, source(hostile, replay=None))
    hostile.wait_for_subscriber()
    for seq in (0, 2, 1, 1, 3, 3, 5, 4, 0):
        hostile.send(seq)
    got.until(lambda: len(got.seqs()) == 6)
    got.until(lambda: got.reader.statuses()[0].duplicates == 3)
    assert got.seqs() == list(range(6))
    assert got.of(Gap) == []
    assert got.of(Restart) == []


def test_a_restart_is_noticed_and_the_new_life_read_from_its_begin(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    for seq in range(3):
        hostile.send(seq)
    got = read(stack, source(hostile))
    got.until(lambda: len(got.seqs()) == 3)
    hostile.wait_for_subscriber()
    hostile.buffer.clear()
    hostile.send(0, payload(2000.0, 7), wire=False)  # published before we were connected again
    hostile.send(1, payload(2001.0, 8))
    got.until(lambda: len(got.seqs()) == 5)
    assert got.seqs() == [0, 1, 2, 0, 1]
    assert isinstance(got.records[3], Restart)
    assert got.records[3].last_seq == 2
    assert got.of(Gap) == []


def test_a_restart_whose_seq_is_already_higher_is_noticed_by_the_replay(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    for seq in range(3):
        hostile.send(seq)
    got = read(stack, source(hostile))
    got.until(lambda: len(got.seqs()) == 3)
    hostile.wait_for_subscriber()
    hostile.buffer.clear()
    for seq in range(6):
        hostile.send(seq, payload(2000.0 + seq, seq), wire=seq == 5)
    got.until(lambda: len(got.seqs()) == 9)
    assert got.seqs() == [0, 1, 2, 0, 1, 2, 3, 4, 5]
    assert isinstance(got.records[3], Restart)
    assert got.of(Gap) == []


@pytest.mark.parametrize("replay", [True, False])
def test_another_form_of_hashes_is_a_restart_though_the_seq_goes_on(
    stack: ExitStack, replay: bool
) -> None:
    hostile = stack.enter_context(Hostile())
    got = read(stack, source(hostile) if replay else source(hostile, replay=None))
    hostile.wait_for_subscriber()
    hostile.send(0)
    got.until(lambda: got.seqs() == [0])
    hostile.buffer.clear()
    hostile.send(0, payload(2000.0, b"x" * 32), wire=False)
    hostile.send(1, payload(2001.0, b"y" * 32))
    got.until(lambda: len(got.seqs()) == (3 if replay else 2))
    assert len(got.of(Restart)) == 1
    assert got.gaps() == ([] if replay else [(0, 0, False)])


def test_malformed_messages_are_noted_and_the_stream_goes_on(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    got = read(stack, source(hostile))
    hostile.wait_for_subscriber()
    hostile.send(0)
    hostile.send_frames([b"topic", b"payload"])
    hostile.send_frames([b"topic", b"short", b"payload"])
    for _ in range(20):
        hostile.send_frames([b"alone"])
    hostile.send(1, b"\xc1 no msgpack")
    hostile.send(2)
    got.until(lambda: len(got.seqs()) == 3)
    assert got.seqs() == [0, 1, 2]
    (broken,) = got.of(Undecodable)
    assert (broken.wire.seq, broken.wire.payload) == (1, b"\xc1 no msgpack")
    assert "a message of 2 frames, expected 3" in got.notes
    assert "a seq frame of 5 bytes" in got.notes
    assert got.notes.count("a message of 1 frames") == 2
    assert "(10 times by now)" in got.notes
    assert all(note.pod == "pod-a" for note in got.of(Note))


def test_notes_about_hostile_messages_do_not_grow_without_end(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    got = read(stack, source(hostile, replay=None))
    hostile.wait_for_subscriber()
    for number in range(1000):  # each fault has a text of its own
        hostile.send_frames([b"topic", (2**63 + number).to_bytes(8, "big"), b""])
    hostile.send(0)
    got.until(lambda: got.seqs() == [0])
    assert 100 < len(got.of(Note)) < 110


# -- ranks and pods -------------------------------------------------------------------------------


def test_ranks_on_two_ports_are_two_streams(stack: ExitStack) -> None:
    ranks = [stack.enter_context(Hostile()) for _ in range(2)]
    for rank, hostile in enumerate(ranks):
        for seq in range(3):
            hostile.send(seq, payload(1000.0 + seq, seq, rank=rank))
    got = read(stack, *[source(hostile, rank=rank) for rank, hostile in enumerate(ranks)])
    got.until(lambda: len(got.records) == 6)
    assert (got.seqs(rank=0), got.seqs(rank=1)) == ([0, 1, 2], [0, 1, 2])


def test_ranks_on_one_port_are_told_apart_by_their_payload(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    got = read(stack, source(hostile, replay=None))
    hostile.wait_for_subscriber()
    for seq in range(3):
        for rank in (0, 1):
            hostile.send(seq, payload(1000.0 + seq, seq, rank=rank))
    got.until(lambda: len(got.records) == 6)
    assert (got.seqs(rank=0), got.seqs(rank=1)) == ([0, 1, 2], [0, 1, 2])
    assert got.of(Restart) == []
    assert [status.rank for status in got.reader.statuses()] == [0, 1]


def test_ranks_on_one_port_share_its_replay(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())

    def both(seq: int, lost: int | None = None) -> None:
        for rank in (0, 1):
            hostile.send(seq, payload(1000.0 + seq, seq, rank=rank), wire=rank != lost)

    for seq in range(3):
        both(seq)
    got = read(stack, source(hostile))
    got.until(lambda: len(got.records) == 6)
    hostile.wait_for_subscriber()
    both(3, lost=1)
    both(4)
    got.until(lambda: len(got.of(Batch)) == 10)
    assert got.seqs(rank=0) == got.seqs(rank=1) == [0, 1, 2, 3, 4]
    assert [(gap.rank, gap.from_seq, gap.recovered) for gap in got.of(Gap)] == [(1, 3, True)]
    assert got.of(Restart) == []


def test_an_undecodable_batch_counts_for_the_rank_whose_turn_it_is(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    got = read(stack, source(hostile, replay=None))
    hostile.wait_for_subscriber()
    for seq in range(3):
        hostile.send(seq, payload(1000.0 + seq, seq, rank=0))
    hostile.send(0, payload(1000.0, 0, rank=1))
    hostile.send(1, b"junk")
    hostile.send(2, payload(1002.0, 2, rank=1))
    got.until(lambda: len(got.records) == 6)
    assert (got.seqs(rank=0), got.seqs(rank=1)) == ([0, 1, 2], [0, 1, 2])


def test_a_stream_named_after_its_payload_only_has_no_empty_twin(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    hostile.send(0, payload(1000.0, 0, rank=3))
    got = read(stack, source(hostile))
    got.until(lambda: got.seqs(rank=3) == [0])
    assert [(status.pod, status.rank) for status in got.reader.statuses()] == [("pod-a", 3)]


def bind_endpoint() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"tcp://127.0.0.1:{free.getsockname()[1]}"


def connecting_engine(stack: ExitStack, endpoint: str) -> zmq.Socket[bytes]:
    context = stack.enter_context(zmq.Context())
    engine = stack.enter_context(context.socket(zmq.XPUB))
    engine.setsockopt(zmq.LINGER, 0)
    engine.connect(endpoint)
    assert engine.poll(30_000)
    engine.recv()
    return engine


def test_engines_that_connect_to_us_are_told_apart_by_topic(stack: ExitStack) -> None:
    endpoint = bind_endpoint()
    got = read(stack, StreamSource("bound", endpoint, bind=True))
    assert got.reader.unconnected() == [(endpoint, "has no engine connected")]
    engines = [(name, connecting_engine(stack, endpoint)) for name in ("pod-a", "pod-b")]
    for seq in range(3):
        for name, engine in engines:
            topic = f"kv@{name}@tiny".encode()
            engine.send_multipart([topic, seq.to_bytes(8, "big"), payload(1000.0 + seq, seq)])
    got.until(lambda: len(got.seqs("pod-a")) == 3 and len(got.seqs("pod-b")) == 3)
    assert got.of(Restart) == []
    assert [status.pod for status in got.reader.statuses()] == ["pod-a", "pod-b"]


def test_a_replay_of_one_engine_says_nothing_about_the_others(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile(topic=b"kv@pod-a@m"))
    hostile.send(0)
    endpoint = bind_endpoint()
    got = read(stack, StreamSource("bound", endpoint, hostile.replay, bind=True))
    other = connecting_engine(stack, endpoint)
    got.until(lambda: got.seqs() == [0])
    for seq in (0, 1, 3):
        other.send_multipart([b"kv@pod-b@m", seq.to_bytes(8, "big"), payload(1000.0 + seq, seq)])
    got.until(lambda: got.seqs("pod-b") == [0, 1, 3])
    assert [(gap.pod, gap.from_seq, gap.recovered) for gap in got.of(Gap)] == [("pod-b", 2, False)]
    assert got.of(Restart) == []


def test_an_engine_without_a_topic_is_named_as_the_bound_source(stack: ExitStack) -> None:
    endpoint = bind_endpoint()
    got = read(stack, StreamSource("bound", endpoint, bind=True))
    engine = connecting_engine(stack, endpoint)
    engine.send_multipart([b"", bytes(8), payload(1000.0, 0)])
    got.until(lambda: got.seqs("bound") == [0])


def test_one_of_several_engines_leaving_leaves_the_endpoint_connected(stack: ExitStack) -> None:
    endpoint = bind_endpoint()
    got = read(stack, StreamSource("bound", endpoint, bind=True))
    first = connecting_engine(stack, endpoint)
    second = connecting_engine(stack, endpoint)
    first.close()
    got.until(lambda: "connection lost" in got.notes)
    second.send_multipart([b"kv@pod-b@m", bytes(8), payload(1000.0, 0)])
    got.until(lambda: got.seqs("pod-b") == [0])
    assert got.reader.unconnected() == []


def test_streams_on_one_endpoint_are_bounded(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvctl.stream.endpoint.MAX_STREAMS", 4)
    hostile = stack.enter_context(Hostile())
    got = read(stack, source(hostile, replay=None))
    hostile.wait_for_subscriber()
    for rank in range(8):
        hostile.send(0, payload(1000.0, 0, rank=rank))
    got.until(lambda: len(got.of(Batch)) == 4)
    hostile.send(1, payload(1001.0, 1, rank=0))
    got.until(lambda: got.seqs(rank=0) == [0, 1])
    assert len(got.of(Note)) == 1
    assert "more than 4 streams" in got.notes


def test_only_topics_with_the_prefix_are_read(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    got = read(stack, source(hostile, replay=None, topic="kv@"))
    hostile.wait_for_subscriber()
    hostile.send_frames([b"other", bytes(8), payload(1000.0, 0)])
    hostile.send(0)
    hostile.send(1)
    got.until(lambda: got.seqs() == [0, 1])


def test_without_tokens_the_batches_are_the_same_but_for_them(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    for seq in range(3):
        hostile.send(seq)
    whole = read(stack, source(hostile))
    untold = read(stack, source(hostile), tokens=False)
    for got in (whole, untold):
        got.until(lambda got=got: got.seqs() == [0, 1, 2])
    for each, other in zip(whole.of(Batch), untold.of(Batch), strict=True):
        assert each.wire.payload == other.wire.payload
        (stored,), (without,) = each.events.events, other.events.events
        assert without.block_hashes == stored.block_hashes
        assert stored.token_ids
        assert without.token_ids == []


def test_many_streams_at_once_lose_nothing(stack: ExitStack) -> None:
    hostiles = [stack.enter_context(Hostile(topic=b"")) for _ in range(16)]
    got = read(stack, *[source(each, pod=f"pod-{n}") for n, each in enumerate(hostiles)])
    for hostile in hostiles:
        hostile.wait_for_subscriber()
    for seq in range(200):
        for hostile in hostiles:
            hostile.send(seq)
    got.until(lambda: len(got.of(Batch)) == 16 * 200)
    for number in range(16):
        assert got.seqs(f"pod-{number}") == list(range(200))


# -- the caller -----------------------------------------------------------------------------------


@pytest.mark.parametrize("replay", [True, False])
def test_a_caller_that_does_not_keep_up_loses_nothing_silently(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch, replay: bool
) -> None:
    monkeypatch.setattr("kvctl.stream.sockets.RECEIVE_HWM", 10)
    hostile = stack.enter_context(Hostile(hwm=10))
    got = read(stack, source(hostile) if replay else source(hostile, replay=None), max_queued=10)
    hostile.wait_for_subscriber()
    hostile.send(0)
    got.until(lambda: got.seqs() == [0])
    sent = 1
    blob = list(range(20_000))
    while sent < 600:  # more than all the queues and TCP's buffers hold; nobody reads meanwhile
        hostile.send(sent, payload(1000.0 + sent, *blob))
        sent += 1
    deadline = time.monotonic() + PATIENCE
    while not got.seqs() or got.seqs()[-1] != sent - 1:  # the last may be lost: send another
        assert time.monotonic() < deadline
        hostile.send(sent)
        sent += 1
        got.records += got.reader.read(0.3)
    accounted = sorted(got.seqs() + got.lost())
    assert accounted == list(range(sent))
    (status,) = got.reader.statuses()
    if replay:
        assert got.lost() == []
        assert status.recovered > 0
    else:
        assert status.missing == len(got.lost()) > 0


def test_what_was_received_before_stop_can_be_read_after_it(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    got = read(stack, source(hostile))
    got.until(got.reader.settled)
    hostile.wait_for_subscriber()
    hostile.silent = True
    hostile.send(0)
    hostile.send(2)  # held: the replay is asked for 1
    got.until(lambda: len(hostile.requests) == 2)
    assert got.seqs() == [0]
    got.reader.stop()
    got.rest()
    assert got.seqs() == [0, 2]
    assert got.gaps() == [(1, 1, False)]
    assert "kvctl-streams" not in {thread.name for thread in threading.enumerate()}
    got.reader.close()  # again does no harm
    assert got.reader.statuses()[0].last_seq == 2


def test_sources_come_and_go(stack: ExitStack) -> None:
    first, second = (stack.enter_context(Hostile()) for _ in range(2))
    first.send(0)
    got = read(stack, source(first))
    got.until(lambda: got.seqs() == [0])
    second.send(0)
    got.reader.add_source(source(second, pod="pod-b"))
    got.reader.add_source(source(second, pod="pod-b"))  # it is there already
    got.until(lambda: got.seqs("pod-b") == [0])
    assert [status.pod for status in got.reader.statuses()] == ["pod-a", "pod-b"]
    first.wait_for_subscriber()
    first.silent = True
    first.send(2)
    got.until(lambda: len(first.requests) == 2)  # 2 is held
    got.reader.remove_source(source(first))
    got.reader.remove_source(source(first))
    got.until(lambda: got.seqs() == [0, 2])
    assert got.gaps() == [(1, 1, False)]
    assert [status.pod for status in got.reader.statuses()] == ["pod-b"]
    second.wait_for_subscriber()
    second.send(1)
    got.until(lambda: got.seqs("pod-b") == [0, 1])
    assert got.reader.endpoint_count == 1


def test_a_source_added_is_checked_and_the_others_go_on(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    got = read(stack, source(hostile))
    with pytest.raises(StreamError, match="nonsense"):
        got.reader.add_source(StreamSource("pod-b", "nonsense"))
    hostile.send(0)
    got.until(lambda: got.seqs() == [0])
    got.reader.stop()
    with pytest.raises(StreamError, match="stopped"):
        got.reader.add_source(source(hostile, pod="pod-c"))


class SlowToLetGo:
    """A lock after whose release a thread of the reader's pauses: others may look meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()
        if threading.current_thread().name == "kvctl-streams":
            time.sleep(0.02)


def test_what_is_settled_has_been_handed_over(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever one looks: not between a step of the stream and the reader's queue."""
    hostile = stack.enter_context(Hostile())
    hostile.send(0)
    slow = SimpleNamespace(Lock=SlowToLetGo, Event=threading.Event, Thread=threading.Thread)
    monkeypatch.setattr("kvctl.stream.reader.threading", slow)
    got = read(stack, source(hostile))
    deadline = time.monotonic() + PATIENCE
    while not got.reader.settled():
        assert time.monotonic() < deadline
        got.records += got.reader.read(0)
        time.sleep(0.001)
    assert got.seqs() == [0]
