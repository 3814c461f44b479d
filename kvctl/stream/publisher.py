"""A PUB and ROUTER pair that publishes batches verbatim and answers replays, as an engine does."""

from __future__ import annotations

import queue
import threading
from collections import deque

import zmq

from kvctl.events import END_OF_REPLAY, encode_seq
from kvctl.stream.errors import StreamError
from kvctl.stream.source import speaks_ipv6


class ReplayablePublisher:
    """Publishes on ``events_endpoint``, answers replays on ``replay_endpoint`` if there is one.

    Port 0 or `*` binds a free port: `events_endpoint` and `replay_endpoint` are as bound. Unlike
    vLLM's, the replay loses nothing. ``replay_topic`` chooses the answers' framing: with the topic
    (vLLM from 0.26) or without. Raises `StreamError` where an endpoint cannot be bound.
    """

    def __init__(
        self,
        events_endpoint: str,
        replay_endpoint: str | None,
        *,
        buffer_steps: int = 10_000,
        replay_topic: bool = True,
    ) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._buffer: deque[tuple[bytes, int, bytes]] = deque(maxlen=buffer_steps)
        self._replay_topic = replay_topic
        self._subscribed = threading.Event()
        self._queue: queue.SimpleQueue[tuple[bytes, int, bytes] | None] = queue.SimpleQueue()
        self._pub = self._context.socket(zmq.XPUB)
        self._router: zmq.Socket[bytes] | None = None
        try:
            self.events_endpoint = self._bind(self._pub, events_endpoint)
            self.replay_endpoint: str | None = None
            if replay_endpoint is not None:
                self._router = self._context.socket(zmq.ROUTER)
                self.replay_endpoint = self._bind(self._router, replay_endpoint)
            self._wake_in = self._context.socket(zmq.PAIR)
            self._wake_out = self._context.socket(zmq.PAIR)
            self._wake_in.bind("inproc://wake")
            self._wake_out.connect("inproc://wake")
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self._thread = threading.Thread(target=self._serve, name="kvctl-publisher", daemon=True)
        self._thread.start()

    @staticmethod
    def _bind(socket: zmq.Socket[bytes], endpoint: str) -> str:
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.LINGER, 1000)
        socket.setsockopt(zmq.IPV6, speaks_ipv6(endpoint))
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            raise StreamError(
                f"cannot bind {endpoint}: {error.strerror}",
                remedy="is the port in use, and the address this machine's?",
            ) from None
        return socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def publish(self, topic: bytes, seq: int, payload: bytes) -> None:
        """Send one batch to whoever is subscribed, and keep it for the replay."""
        self._queue.put((topic, seq, payload))
        self._wake_in.send(b"")

    def wait_for_subscriber(self, timeout: float) -> bool:
        """Wait until somebody has subscribed; False after ``timeout`` seconds."""
        return self._subscribed.wait(timeout)

    def close(self) -> None:
        """Send what is queued, then stop."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._wake_in.send(b"")
            self._thread.join()
        self._context.destroy(linger=1000)

    def _serve(self) -> None:
        poller = zmq.Poller()
        for socket in (self._pub, self._wake_out, self._router):
            if socket is not None:
                poller.register(socket, zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            if self._pub in ready and self._pub.recv()[:1] == b"\x01":
                self._subscribed.set()
            if self._wake_out in ready:
                self._wake_out.recv()
                item = self._queue.get()
                if item is None:
                    return
                topic, seq, payload = item
                self._pub.send_multipart([topic, encode_seq(seq), payload])
                self._buffer.append(item)
            if self._router is not None and self._router in ready:
                self._answer(self._router)

    def _answer(self, router: zmq.Socket[bytes]) -> None:
        frames = router.recv_multipart()
        if len(frames) != 3 or len(frames[2]) != 8:
            return
        client, start = frames[0], int.from_bytes(frames[2], "big")
        for topic, seq, payload in self._buffer:
            if seq >= start:
                named = [topic] if self._replay_topic else []
                router.send_multipart([client, b"", *named, encode_seq(seq), payload])
        named = [b""] if self._replay_topic else []
        router.send_multipart([client, b"", *named, END_OF_REPLAY, b""])
