"""Connections that are lost, come late, or never become any."""

from __future__ import annotations

import http.server
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest
import zmq
from hostile import Hostile, payload
from stream_collected import read, source

from kvctl.events import Gap, Note, Restart
from kvctl.stream import ReplayablePublisher, StreamError, StreamReader, StreamSource


def test_an_engine_that_comes_back_on_its_port_is_checked_for_its_life(stack: ExitStack) -> None:
    first = Hostile()
    for seq in range(3):
        first.send(seq)
    got = read(stack, source(first))
    got.until(lambda: len(got.seqs()) == 3)
    first.close()
    got.until(lambda: "connection lost" in got.notes)
    assert got.reader.unconnected() == [(first.events, "has lost its connection")]
    second = stack.enter_context(Hostile(events=first.events, replay=first.replay))
    for seq in range(4):
        second.send(seq, payload(2000.0 + seq, seq))
    got.until(lambda: len(got.seqs()) == 7)
    assert "connected again" in got.notes
    assert got.seqs() == [0, 1, 2, 0, 1, 2, 3]
    assert len(got.of(Restart)) == 1
    assert got.of(Gap) == []


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
    assert got.gaps() == [(3, 4, True)]


def test_an_engine_that_dies_over_its_answer_is_asked_anew_when_it_is_back(
    stack: ExitStack,
) -> None:
    first = Hostile()
    first.silent = True
    got = read(stack, source(first), replay_timeout=1000)
    got.until(lambda: first.requests == [0])
    first.close()
    second = stack.enter_context(Hostile(events=first.events, replay=first.replay))
    second.send(0, wire=False)
    got.until(lambda: got.seqs() == [0])
    assert second.requests == [0]


def test_what_an_old_connection_brought_is_read_before_the_replay_of_the_new_is_asked(
    stack: ExitStack,
) -> None:
    first = Hostile()
    got = read(stack, source(first), max_queued=1)
    first.wait_for_subscriber()
    got.until(got.reader.settled)
    first.send(0)
    got.until(lambda: got.reader.statuses()[0].last_seq == 0)
    for seq in range(1, 4):
        first.send(seq)  # these stay with ZMQ: the caller does not read
    first.close()
    second = stack.enter_context(Hostile(events=first.events, replay=first.replay))
    for seq in range(6):
        second.send(seq, payload(2000.0 + seq, seq), wire=False)
    second.wait_for_subscriber()
    time.sleep(0.5)  # time enough to ask
    assert second.requests == []
    got.until(lambda: got.seqs()[-6:] == [0, 1, 2, 3, 4, 5])
    assert len(got.of(Restart)) == 1
    assert got.of(Gap) == []


def test_a_reconnection_without_a_replay_is_noted(stack: ExitStack) -> None:
    first = Hostile()
    got = read(stack, source(first, replay=None))
    first.wait_for_subscriber()
    first.send(0)
    got.until(lambda: got.seqs() == [0])
    first.close()
    got.until(lambda: "connection lost" in got.notes)
    second = stack.enter_context(Hostile(events=first.events))
    second.wait_for_subscriber()
    got.until(lambda: "connected again" in got.notes)
    second.send(0, payload(500.0, 0))  # a new life, by a clock that was set back
    got.until(lambda: got.seqs() == [0, 0])
    assert len(got.of(Restart)) == 1
    assert [note.pod for note in got.of(Note)] == ["pod-a", "pod-a"]


def test_the_history_of_an_engine_that_comes_late_is_read(stack: ExitStack) -> None:
    early = Hostile()
    early.close()
    got = read(stack, source(early), replay_timeout=0.2, replay_tries=1)
    got.until(lambda: got.reader.statuses()[0].replay == "silent")  # asked in vain
    assert got.reader.wait_connected(0) == [early.events]
    assert got.reader.unconnected() == [(early.events, "is not served")]
    late = Hostile(events=early.events, replay=early.replay)
    stack.enter_context(late)
    for seq in range(5):
        late.send(seq, wire=False)
    got.until(lambda: len(got.seqs()) == 5)
    assert got.of(Gap) == []
    assert got.reader.wait_connected(30) == []


def test_a_message_over_the_limit_costs_the_connection_and_its_batch(stack: ExitStack) -> None:
    hostile = stack.enter_context(Hostile())
    got = read(stack, source(hostile))
    hostile.wait_for_subscriber()
    hostile.send(0)
    got.until(lambda: got.seqs() == [0])
    hostile.send(1, b"x" * (66 * 1024 * 1024), keep=False)
    got.until(lambda: "connection lost" in got.notes)
    got.until(lambda: "connected again" in got.notes)
    assert "a message over 64 MiB" in got.notes
    hostile.send(2)
    got.until(lambda: got.seqs() == [0, 2])
    assert got.lost() == [1]


@pytest.fixture
def http_endpoint(stack: ExitStack) -> str:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    stack.callback(thread.join)
    stack.callback(server.server_close)
    stack.callback(server.shutdown)
    return f"tcp://127.0.0.1:{server.server_port}"


@pytest.fixture
def closing_endpoint(stack: ExitStack) -> str:
    """Takes connections and closes them, as a proxy without a backend does."""
    server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    server.settimeout(0.05)
    stopping = threading.Event()

    def serve() -> None:
        while not stopping.is_set():
            try:
                server.accept()[0].close()
            except TimeoutError:
                continue

    thread = threading.Thread(target=serve)
    thread.start()
    stack.callback(thread.join)
    stack.callback(stopping.set)
    return f"tcp://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def pushing_endpoint(stack: ExitStack) -> str:
    """Speaks ZMQ, but does not publish."""
    context = stack.enter_context(zmq.Context())
    push = stack.enter_context(context.socket(zmq.PUSH))
    push.setsockopt(zmq.LINGER, 0)
    push.bind("tcp://127.0.0.1:*")
    return push.getsockopt_string(zmq.LAST_ENDPOINT)


@pytest.mark.parametrize("kind", ["http_endpoint", "closing_endpoint", "pushing_endpoint"])
def test_a_port_that_is_no_publisher_is_told_once(
    stack: ExitStack, request: pytest.FixtureRequest, kind: str
) -> None:
    endpoint: str = request.getfixturevalue(kind)
    hostile = stack.enter_context(Hostile())
    got = read(stack, StreamSource("pod-b", endpoint), source(hostile))
    got.until(lambda: "does not speak ZMQ" in got.notes)
    assert got.reader.unconnected() == [(endpoint, "does not speak ZMQ")]
    assert got.reader.wait_connected(3) == [endpoint]
    hostile.send(0)
    got.until(lambda: got.seqs() == [0])
    assert [note.pod for note in got.of(Note)] == ["pod-b"]


def test_a_stranger_at_a_bound_port_is_no_lost_engine(stack: ExitStack) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    endpoint = f"tcp://127.0.0.1:{port}"
    got = read(stack, StreamSource("bound", endpoint, bind=True))
    context = stack.enter_context(zmq.Context())
    engine = stack.enter_context(context.socket(zmq.XPUB))
    engine.setsockopt(zmq.LINGER, 0)
    engine.connect(endpoint)
    assert engine.poll(30_000)
    for _ in range(4):
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
    got.until(lambda: "does not speak ZMQ" in got.notes)
    assert "connection lost" not in got.notes
    assert got.reader.unconnected() == []


def wrong_sources() -> list[StreamSource]:
    return [
        StreamSource("pod-a", "nonsense"),
        StreamSource("pod-a", "tcp://127.0.0.1"),
        StreamSource("pod-a", "udp:/x", bind=True),
        StreamSource("pod-a", "tcp://127.0.0.1:5557", "http://127.0.0.1:5558"),
    ]


@pytest.mark.parametrize("wrong", wrong_sources(), ids=lambda each: each.replay or each.events)
def test_an_endpoint_that_is_none_is_refused_by_name(wrong: StreamSource) -> None:
    with pytest.raises(StreamError) as caught:
        StreamReader([wrong])
    assert (wrong.replay or wrong.events) in caught.value.message
    assert "tcp://10.0.0.7:5557" in caught.value.remedy


@pytest.mark.parametrize(
    "use",
    [
        lambda endpoint: StreamReader([StreamSource("pod-a", endpoint, bind=True)]),
        lambda endpoint: ReplayablePublisher(endpoint, None),
        lambda endpoint: ReplayablePublisher("tcp://127.0.0.1:0", endpoint),
    ],
    ids=["reader", "publisher", "replay"],
)
def test_binding_a_port_in_use_is_refused(stack: ExitStack, use: Callable[[str], object]) -> None:
    taken = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    endpoint = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(StreamError, match="in use") as caught:
        use(endpoint)
    assert endpoint in caught.value.message


FEW_FILES = """
import resource
from kvctl.stream import StreamError, StreamReader, StreamSource

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    StreamReader([StreamSource(f"pod-{n}", f"tcp://127.0.0.1:{n}") for n in range(1, 200)])
except StreamError as error:
    print(error)
"""


def test_too_many_open_files_is_an_error_with_a_remedy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FEW_FILES], check=False, capture_output=True, text=True
    )
    assert "Too many open files" in done.stdout, done.stderr
    assert "ulimit -n" in done.stdout


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
