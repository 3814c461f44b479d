"""The publisher of one DP rank: PUB and ROUTER as vLLM's ``ZmqEventPublisher``, with faults."""

from __future__ import annotations

import threading
from collections import deque

import zmq

from kvctl.errors import KvctlError
from kvctl.events import END_OF_REPLAY, EventBatch, encode_batch, encode_seq
from kvctl.sim.config import SimConfig

_POLL_MS = 20


class SimPublisher:
    """Publishes batches of one rank, each life from seq 0, and answers replays of that life.

    ``drop`` batches are lost on the way but replayed, ``forget`` ones are in the buffer neither.
    """

    def __init__(self, config: SimConfig, rank: int) -> None:
        self._config = config
        self._rank = rank
        self._lock = threading.Lock()
        self._buffer: deque[tuple[int, bytes]] = deque(maxlen=config.buffer_steps)
        self._seq = 0
        self._drop = self._forget = 0
        self.stalled = False
        self.events = f"tcp://127.0.0.1:{_port(config.events_port, rank)}"
        self.replay = f"tcp://127.0.0.1:{_port(config.replay_port, rank)}"
        self._open()

    @property
    def next_seq(self) -> int:
        """The seq of the next batch."""
        return self._seq

    def publish(self, batch: EventBatch) -> None:
        """Send a batch; also the one that a fault makes vanish counts its seq."""
        payload = encode_batch(batch, self._config.form)
        with self._lock:
            seq, self._seq = self._seq, self._seq + 1
            lost = self._drop > 0 or self._forget > 0
            if self._forget > 0:
                self._forget -= 1
            else:
                self._buffer.append((seq, payload))
                self._drop = max(0, self._drop - 1)
            if not lost:
                self._pub.send_multipart([self._config.topic, encode_seq(seq), payload])

    def lose(self, batches: int, *, keep: bool) -> None:
        """The next ``batches`` are not delivered; with ``keep`` the replay still has them."""
        with self._lock:
            if keep:
                self._drop = batches
            else:
                self._forget = batches

    def restart(self) -> None:
        """A new process: the ports close and open again, seqs begin at 0, the buffer is empty."""
        self.close()
        self._buffer.clear()
        self._seq = self._drop = self._forget = 0
        self._open()

    def close(self) -> None:
        """Close the ports."""
        self._stopping.set()
        self._thread.join()
        self._context.destroy(linger=200)

    def _open(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._pub = self._context.socket(zmq.PUB)
        self._pub.setsockopt(zmq.SNDHWM, 100_000)
        self._router = self._context.socket(zmq.ROUTER)
        if not self._config.lossy:
            self._router.setsockopt(zmq.SNDHWM, 0)
        try:
            self.events = _bind(self._pub, self.events)
            self.replay = _bind(self._router, self.replay)
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="sim-replay", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._stopping.is_set():
            if self.stalled:
                self._stopping.wait(_POLL_MS / 1000)
            elif self._router.poll(_POLL_MS):
                self._answer(self._router.recv_multipart())

    def _answer(self, frames: list[bytes]) -> None:
        if len(frames) != 3 or len(frames[2]) != 8:
            return  # an engine drops a request without its empty frame as well
        client, start = frames[0], int.from_bytes(frames[2], "big")
        with self._lock:
            kept = list(self._buffer)
        named = self._config.form.replay_topic
        topic = [self._config.topic] if named else []
        for seq, payload in kept:
            if seq >= start:
                self._router.send_multipart([client, b"", *topic, encode_seq(seq), payload])
        self._router.send_multipart([client, b"", *([b""] if named else []), END_OF_REPLAY, b""])


def _port(base: int, rank: int) -> str:
    return str(base + rank) if base else "*"


def _bind(socket: zmq.Socket[bytes], endpoint: str) -> str:
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        raise KvctlError(
            f"the simulated engine cannot bind {endpoint}: {zmq.strerror(error.errno or 0)}",
            remedy="--port-base chooses other ports",
        ) from None
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)
