"""A PUB and ROUTER pair that publishes batches verbatim and answers replays, as an engine does."""

from __future__ import annotations

import logging
import threading
from collections import deque

import zmq

from kvctl.events import END_OF_REPLAY, encode_seq
from kvctl.stream.errors import StreamError
from kvctl.stream.source import speaks_ipv6

_log = logging.getLogger(__name__)
_LINGER_MS = 1000
_END_OF_FEED = b""


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
        self._buffer: deque[list[bytes]] = deque(maxlen=buffer_steps)
        self._replay_topic = replay_topic
        self._subscribed = threading.Event()
        self._publishing = threading.Lock()
        try:
            self._pub = self._bind(zmq.XPUB, events_endpoint)
            self.events_endpoint = self._pub.getsockopt_string(zmq.LAST_ENDPOINT)
            self._router: zmq.Socket[bytes] | None = None
            self.replay_endpoint: str | None = None
            if replay_endpoint is not None:
                self._router = self._bind(zmq.ROUTER, replay_endpoint)
                self.replay_endpoint = self._router.getsockopt_string(zmq.LAST_ENDPOINT)
            # The way to the thread that has the sockets. It holds so many batches, then waits.
            self._feed = self._context.socket(zmq.PAIR)
            self._fed = self._context.socket(zmq.PAIR)
            self._feed.bind("inproc://batches")
            self._fed.connect("inproc://batches")
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self._thread = threading.Thread(target=self._serve, name="kvctl-publisher", daemon=True)
        self._thread.start()

    def _bind(self, kind: int, endpoint: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.LINGER, _LINGER_MS)
        socket.setsockopt(zmq.IPV6, speaks_ipv6(endpoint))
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            raise StreamError(
                f"cannot bind {endpoint}: {zmq.strerror(error.errno or 0)}",
                remedy="is the port in use, and the address this machine's?",
            ) from None
        _log.debug("ZMQ bind %s", socket.getsockopt_string(zmq.LAST_ENDPOINT))
        return socket

    def publish(self, topic: bytes, seq: int, payload: bytes) -> None:
        """Send one batch to whoever is subscribed, and keep it for the replay.

        A replay asked for after this call has the batch. Raises `StreamError` after `close`.
        """
        with self._publishing:
            if not self._thread.is_alive():
                raise StreamError(f"{self.events_endpoint}: the publisher has been closed")
            self._feed.send_multipart([topic, encode_seq(seq), payload])

    def wait_for_subscriber(self, timeout: float) -> bool:
        """Wait until somebody has subscribed; False after ``timeout`` seconds."""
        return self._subscribed.wait(timeout)

    def close(self) -> None:
        """Send what is queued, then stop."""
        with self._publishing:
            if self._thread.is_alive():
                self._feed.send(_END_OF_FEED)
                self._thread.join()
        self._context.destroy(linger=_LINGER_MS)

    def _serve(self) -> None:
        poller = zmq.Poller()
        for socket in (self._pub, self._fed, self._router):
            if socket is not None:
                poller.register(socket, zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            if self._pub in ready and self._pub.recv()[:1] == b"\x01":
                self._subscribed.set()
            # Before a request is answered: who asks may know what was published.
            if not self._publish_fed():
                return
            if self._router is not None and self._router in ready:
                self._answer(self._router)

    def _publish_fed(self) -> bool:
        """Publish what was handed in; False at the end of it."""
        while True:
            try:
                frames = self._fed.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return True
            if len(frames) == 1:
                return False
            self._pub.send_multipart(frames)
            self._buffer.append(frames)

    def _answer(self, router: zmq.Socket[bytes]) -> None:
        frames = router.recv_multipart()
        if len(frames) != 3 or len(frames[2]) != 8:
            return
        client, start = frames[0], frames[2]
        end = [b"", END_OF_REPLAY, b""]
        for batch in [*self._buffer, end]:
            if batch[1] >= start:  # big-endian: in the order of the numbers
                router.send_multipart([client, b"", *batch[0 if self._replay_topic else 1 :]])
