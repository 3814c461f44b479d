"""The publisher of ours: verbatim, lossless, and in an engine's words."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import msgpack
import pytest
import zmq
from hostile import payload
from stream_collected import read

from kvctl.events import Gap
from kvctl.stream import ReplayablePublisher, StreamSource

END = b"\xff" * 8


def dealer(stack: ExitStack, endpoint: str | None) -> zmq.Socket[bytes]:
    assert endpoint is not None
    context = stack.enter_context(zmq.Context())
    socket = stack.enter_context(context.socket(zmq.DEALER))
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(endpoint)
    return socket


def answers(socket: zmq.Socket[bytes]) -> list[list[bytes]]:
    found: list[list[bytes]] = []
    while not found or found[-1][-2] != END:
        assert socket.poll(30_000)
        found.append(socket.recv_multipart())
    return found


@pytest.mark.parametrize("topic", [[b"kv"], []], ids=["four-frames", "three-frames"])
def test_the_replay_answers_as_an_engine_does(stack: ExitStack, topic: list[bytes]) -> None:
    publisher = ReplayablePublisher(
        "tcp://127.0.0.1:0", "tcp://127.0.0.1:0", buffer_steps=3, replay_topic=bool(topic)
    )
    stack.callback(publisher.close)
    bodies = [msgpack.packb([1.0 + seq, []]) for seq in range(5)]
    for seq, body in enumerate(bodies):
        publisher.publish(b"kv", seq, body)
    socket = dealer(stack, publisher.replay_endpoint)
    socket.send_multipart([b"", (3).to_bytes(8, "big")])
    end = [b"", b"", END, b""] if topic else [b"", END, b""]
    assert answers(socket) == [
        [b"", *topic, (3).to_bytes(8, "big"), bodies[3]],
        [b"", *topic, (4).to_bytes(8, "big"), bodies[4]],
        end,
    ]
    socket.send_multipart([b"", bytes(8)])
    assert [int.from_bytes(each[-2], "big") for each in answers(socket)[:-1]] == [2, 3, 4]
    socket.send_multipart([b"", (9).to_bytes(8, "big")])
    assert answers(socket) == [end]


def test_a_malformed_request_is_not_answered_and_harms_nobody(stack: ExitStack) -> None:
    publisher = ReplayablePublisher("tcp://127.0.0.1:0", "tcp://127.0.0.1:0")
    stack.callback(publisher.close)
    socket = dealer(stack, publisher.replay_endpoint)
    for frames in ([bytes(8)], [b"", b"short"], [b"", bytes(8), b"more"]):
        socket.send_multipart(frames)
    socket.send_multipart([b"", bytes(8)])
    assert answers(socket) == [[b"", b"", END, b""]]


def test_frames_are_published_as_they_were_given(stack: ExitStack) -> None:
    publisher = ReplayablePublisher("tcp://127.0.0.1:*", None)
    stack.callback(publisher.close)
    assert publisher.replay_endpoint is None
    assert not publisher.wait_for_subscriber(0)
    context = stack.enter_context(zmq.Context())
    sub = stack.enter_context(context.socket(zmq.SUB))
    sub.subscribe(b"")
    sub.connect(publisher.events_endpoint)
    assert publisher.wait_for_subscriber(30)
    publisher.publish(b"kv@a@m", 2**40, b"\xc1 any bytes")
    assert sub.poll(30_000)
    assert sub.recv_multipart() == [b"kv@a@m", (2**40).to_bytes(8, "big"), b"\xc1 any bytes"]


def test_closing_sends_what_is_queued_and_may_be_done_again(stack: ExitStack) -> None:
    publisher = ReplayablePublisher("tcp://127.0.0.1:*", None)
    context = stack.enter_context(zmq.Context())
    sub = stack.enter_context(context.socket(zmq.SUB))
    sub.setsockopt(zmq.RCVHWM, 0)
    sub.subscribe(b"")
    sub.connect(publisher.events_endpoint)
    assert publisher.wait_for_subscriber(30)
    for seq in range(3000):
        publisher.publish(b"", seq, b"x")
    publisher.close()
    publisher.close()
    for seq in range(3000):
        assert sub.poll(30_000)
        assert int.from_bytes(sub.recv_multipart()[1], "big") == seq
    assert "kvctl-publisher" not in {thread.name for thread in threading.enumerate()}


def test_a_reader_gets_the_whole_buffer_at_once(stack: ExitStack) -> None:
    publisher = ReplayablePublisher("tcp://127.0.0.1:*", "tcp://127.0.0.1:*")
    stack.callback(publisher.close)
    for seq in range(10_000):
        publisher.publish(b"kv@pod-a@m", seq, payload(1000.0 + seq, *range(40)))
    source = StreamSource("pod-a", publisher.events_endpoint, publisher.replay_endpoint)
    got = read(stack, source)
    got.until(lambda: len(got.seqs()) == 10_000)
    assert got.seqs() == list(range(10_000))
    assert got.of(Gap) == []
