"""Live streams over real sockets, from publishers that behave and that do not."""

from __future__ import annotations

import http.server
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import msgpack
import pytest
import zmq
from hostile import Hostile, payload

from kvctl.events import Batch, Gap, Note, Record, Restart, Undecodable
from kvctl.stream import ReplayablePublisher, StreamError, StreamReader, StreamSource

PATIENCE = 30.0


class Collected:
    """A reader's records, read until a condition holds."""

    def __init__(self, reader: StreamReader) -> None:
        self.reader = reader
        self.records: list[Record] = []

    def until(self, condition: Callable[[], object], timeout: float = PATIENCE) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, self.records[-5:]
            self.records += self.reader.read(0.05)

    def seqs(self, pod: str = "pod-a", rank: int = 0) -> list[int]:
        return [
            record.wire.seq
            for record in self.records
            if isinstance(record, (Batch, Undecodable))
            and (record.wire.pod, record.wire.rank) == (pod, rank)
        ]

    def of(self, kind: type) -> list:
        return [record for record in self.records if isinstance(record, kind)]

    @property
    def notes(self) -> str:
        return "\n".join(note.text for note in self.of(Note))


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


def source(hostile: Hostile, **fields: object) -> StreamSource:
    given = {"pod": "pod-a", "events": hostile.events, "replay": hostile.replay} | fields
    return StreamSource(**given)  # type: ignore[arg-type]


def read(stack: ExitStack, *sources: StreamSource, **options: object) -> Collected:
    return Collected(stack.enter_context(StreamReader(sources, **options)))  # type: ignore[arg-type]


@pytest.mark.parametrize("topic_frame", [True, False])
def test_the_replay_comes_first_then_the_live_batches(stack: ExitStack, topic_frame: bool) -> None:
    hostile = stack.enter_context(Hostile())
    hostile.topic_frame = topic_frame
    for seq in range(5):
        hostile.send(seq)
    got = read(stack, source(hostile))
    got.until(lambda: len(got.seqs()) == 5)
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


def test_what_the_buffer_no_longer_holds_is_a_gap_in_front(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile(buffer=4))
    for seq in range(10):
        hostile.send(seq)
    got = read(stack, source(hostile))
    got.until(lambda: len(got.seqs()) == 4)
    (gap,) = got.of(Gap)
    assert (gap.from_seq, gap.to_seq, gap.recovered) == (0, 5, False)
    assert isinstance(got.records[0], Gap)


def test_a_batch_lost_on_the_way_is_recovered_before_the_later_ones(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    hostile.send(0)
    got = read(stack, source(hostile))
    got.until(lambda: got.seqs() == [0])
    hostile.send(1, wire=False)
    hostile.send(2, wire=False)
    hostile.send(3)
    got.until(lambda: len(got.seqs()) == 4)
    assert got.seqs() == [0, 1, 2, 3]
    (gap,) = got.of(Gap)
    assert (gap.from_seq, gap.to_seq, gap.recovered) == (1, 2, True)


def test_what_cannot_be_recovered_is_a_lost_gap(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    hostile.send(0)
    got = read(stack, source(hostile))
    got.until(lambda: got.seqs() == [0])
    hostile.send(1, wire=False)
    hostile.send(2, wire=False, keep=False)
    hostile.send(3)
    got.until(lambda: len(got.seqs()) == 3)
    assert got.seqs() == [0, 1, 3]
    assert [(gap.from_seq, gap.to_seq, gap.recovered) for gap in got.of(Gap)] == [
        (1, 1, True),
        (2, 2, False),
    ]


def test_without_a_replay_gaps_are_reported_and_the_stream_goes_on(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    got = read(stack, source(hostile, replay=None))
    hostile.wait_for_subscriber()
    for seq in (3, 4, 7):
        hostile.send(seq)
    got.until(lambda: len(got.seqs()) == 3)
    assert [(gap.from_seq, gap.to_seq, gap.recovered) for gap in got.of(Gap)] == [
        (0, 2, False),
        (5, 6, False),
    ]
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


@pytest.mark.parametrize("silent", [True, False])
def test_a_replay_that_fails_costs_the_history_not_the_stream(
    stack: ExitStack, silent: bool
) -> None:
    hostile = stack.enter_context(Hostile())
    hostile.silent = silent
    hostile.end = False
    hostile.send(0, keep=False)
    got = read(stack, source(hostile))
    hostile.wait_for_subscriber()
    hostile.send(1, keep=False)
    got.until(lambda: got.seqs() == [1])
    assert [(gap.from_seq, gap.to_seq) for gap in got.of(Gap)] == [(0, 0)]
    (status,) = got.reader.statuses()
    assert status.replay == "silent"
    assert len(hostile.requests) >= 2


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


def test_a_lossy_replay_of_10_000_batches_is_whole_though_the_reader_is_busy(
    stack: ExitStack,
) -> None:
    """As vLLM's own: a ROUTER that drops what its queue does not take, the end marker too."""
    hostile = stack.enter_context(Hostile(lossy=True))
    for seq in range(10_000):
        hostile.send(seq, payload(1000.0 + seq, *range(40)))
    got = read(stack, source(hostile))
    deadline = time.monotonic() + 90
    while len(got.seqs()) < 10_000:
        assert time.monotonic() < deadline
        records = got.reader.read(0.1)
        for _ in records[:200]:
            sum(range(20_000))  # a busy index: it holds the interpreter
        got.records += records
    assert got.seqs() == list(range(10_000))
    assert got.of(Gap) == []


def test_a_restart_is_noticed_and_the_new_life_read_from_its_begin(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    for seq in range(3):
        hostile.send(seq)
    got = read(stack, source(hostile))
    got.until(lambda: len(got.seqs()) == 3)
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
    hostile.buffer.clear()
    for seq in range(6):
        hostile.send(seq, payload(2000.0 + seq, seq), wire=seq == 5)
    got.until(lambda: len(got.seqs()) == 9)
    assert got.seqs() == [0, 1, 2, 0, 1, 2, 3, 4, 5]
    assert [type(record) for record in got.records[3:4]] == [Restart]
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
    assert len(got.of(Gap)) == (0 if replay else 1)


def test_an_engine_that_comes_back_on_its_port_is_checked_for_its_life(stack: ExitStack) -> None:
    first = Hostile()
    for seq in range(3):
        first.send(seq)
    got = read(stack, source(first))
    got.until(lambda: len(got.seqs()) == 3)
    first.close()
    got.until(lambda: "connection lost" in got.notes)
    second = stack.enter_context(Hostile(events=first.events, replay=first.replay))
    for seq in range(4):
        second.send(seq, payload(2000.0 + seq, seq))
    got.until(lambda: len(got.seqs()) == 7)
    assert "connected again" in got.notes
    assert got.seqs() == [0, 1, 2, 0, 1, 2, 3]
    assert len(got.of(Restart)) == 1


def test_a_lost_connection_to_the_same_life_costs_nothing(stack: ExitStack) -> None:
    first = Hostile()
    for seq in range(3):
        first.send(seq)
    got = read(stack, source(first))
    got.until(lambda: len(got.seqs()) == 3)
    first.close()
    got.until(lambda: "connection lost" in got.notes)
    second = stack.enter_context(Hostile(events=first.events, replay=first.replay))
    for seq in range(5):
        second.send(seq, wire=False)  # the same batches, and two we missed
    got.until(lambda: len(got.seqs()) == 5)
    assert got.seqs() == [0, 1, 2, 3, 4]
    assert got.of(Restart) == []


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


def test_engines_that_connect_to_us_are_told_apart_by_topic(stack: ExitStack) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        endpoint = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    got = read(stack, StreamSource("bound", endpoint, bind=True))
    context = stack.enter_context(zmq.Context())
    engines = []
    for name in ("pod-a", "pod-b"):
        engine = stack.enter_context(context.socket(zmq.XPUB))
        engine.setsockopt(zmq.LINGER, 0)
        engine.connect(endpoint)
        assert engine.poll(30_000)
        engine.recv()
        engines.append((name, engine))
    for seq in range(3):
        for name, engine in engines:
            topic = f"kv@{name}@tiny".encode()
            engine.send_multipart([topic, seq.to_bytes(8, "big"), payload(1000.0 + seq, seq)])
    got.until(lambda: len(got.seqs("pod-a")) == 3 and len(got.seqs("pod-b")) == 3)
    assert got.of(Restart) == []


def test_many_streams_at_once_lose_nothing(stack: ExitStack) -> None:
    hostiles = [stack.enter_context(Hostile(topic=b"")) for _ in range(16)]
    got = read(stack, *[source(each, pod=f"pod-{n}") for n, each in enumerate(hostiles)])
    for hostile in hostiles:
        hostile.wait_for_subscriber()
    for seq in range(200):
        for hostile in hostiles:
            hostile.send(seq)
    got.until(lambda: sum(isinstance(record, Batch) for record in got.records) == 16 * 200)
    for number in range(16):
        assert got.seqs(f"pod-{number}") == list(range(200))


def test_a_reader_that_does_not_keep_up_loses_nothing_silently(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    got = read(stack, source(hostile), max_queued=100)
    hostile.wait_for_subscriber()
    for seq in range(5000):
        hostile.send(seq)
    time.sleep(1.0)
    got.until(lambda: got.seqs()[-1:] == [4999])
    missing = {
        seq
        for gap in got.of(Gap)
        if not gap.recovered
        for seq in range(gap.from_seq, gap.to_seq + 1)
    }
    assert sorted({*got.seqs(), *missing}) == list(range(5000))
    assert len(got.seqs()) + len(missing) == 5000


def test_what_was_received_before_stop_can_be_read_after_it(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    got = read(stack, source(hostile, replay=None))
    hostile.wait_for_subscriber()
    hostile.send(0)
    hostile.send(2)  # held, for 1 may still come
    deadline = time.monotonic() + PATIENCE
    while got.reader.statuses()[0].last_batch_ns is None:
        assert time.monotonic() < deadline
    got.reader.stop()
    while records := got.reader.read(0):
        got.records += records
    assert got.seqs() in ([0], [0, 2])
    assert threading.active_count() == 2  # this one and the publisher's


def test_a_message_over_the_limit_is_cut_off_with_a_note(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    got = read(stack, source(hostile))
    hostile.wait_for_subscriber()
    hostile.send(0)
    got.until(lambda: got.seqs() == [0])
    hostile.send(1, b"x" * (66 * 1024 * 1024), keep=False)
    got.until(lambda: "connection lost" in got.notes)
    got.until(lambda: "connected again" in got.notes)
    hostile.send(2)
    got.until(lambda: got.seqs() == [0, 2])
    assert [(gap.from_seq, gap.to_seq) for gap in got.of(Gap)] == [(1, 1)]


def test_a_port_that_speaks_http_never_connects(stack: ExitStack) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    stack.callback(thread.join)
    stack.callback(server.server_close)
    stack.callback(server.shutdown)
    endpoint = f"tcp://127.0.0.1:{server.server_port}"
    got = read(stack, StreamSource("pod-a", endpoint))
    got.until(lambda: got.reader.unconnected() == [(endpoint, "does not speak ZMQ")])


@pytest.mark.parametrize(
    ("endpoint", "bind"),
    [
        ("nonsense", False),
        ("tcp://127.0.0.1", False),
        ("udp:/x", True),
    ],
)
def test_an_endpoint_that_is_none_is_refused_by_name(endpoint: str, bind: bool) -> None:
    with pytest.raises(StreamError) as caught:
        StreamReader([StreamSource("pod-a", endpoint, bind=bind)])
    assert endpoint in caught.value.message
    assert "tcp://10.0.0.7:5557" in caught.value.remedy


def test_binding_a_port_in_use_is_refused(stack: ExitStack) -> None:
    taken = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    endpoint = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(StreamError, match="in use"):
        StreamReader([StreamSource("pod-a", endpoint, bind=True)])
    with pytest.raises(StreamError, match="in use"):
        ReplayablePublisher(endpoint, None)


def test_ipv6_endpoints_work(stack: ExitStack) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    publisher = ReplayablePublisher("tcp://[::1]:*", "tcp://[::1]:*")
    stack.callback(publisher.close)
    publisher.publish(b"", 0, payload(1.0, 1))
    got = read(stack, StreamSource("pod-a", publisher.events_endpoint, publisher.replay_endpoint))
    got.until(lambda: got.seqs() == [0])


@pytest.mark.parametrize("replay_topic", [True, False])
def test_a_publisher_of_ours_answers_as_an_engine_does(
    stack: ExitStack, replay_topic: bool
) -> None:
    publisher = ReplayablePublisher(
        "tcp://127.0.0.1:0", "tcp://127.0.0.1:0", buffer_steps=3, replay_topic=replay_topic
    )
    stack.callback(publisher.close)
    for seq in range(5):
        publisher.publish(b"kv", seq, msgpack.packb([1.0 + seq, []]))
    context = stack.enter_context(zmq.Context())
    dealer = stack.enter_context(context.socket(zmq.DEALER))
    dealer.connect(publisher.replay_endpoint)
    dealer.send_multipart([b"", (3).to_bytes(8, "big")])
    answers = []
    while not answers or answers[-1][-2] != b"\xff" * 8:
        assert dealer.poll(30_000)
        answers.append(dealer.recv_multipart())
    assert [int.from_bytes(answer[-2], "big") for answer in answers[:-1]] == [3, 4]
    assert {len(answer) for answer in answers} == {4 if replay_topic else 3}
