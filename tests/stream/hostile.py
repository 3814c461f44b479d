"""A publisher that behaves as real engines do, and worse, on demand."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

import msgpack
import zmq

END = b"\xff" * 8


def payload(ts: float, *hashes: int | bytes, rank: int | None = 0) -> bytes:
    """One store of two tokens a block, encoded without kvctl."""
    event = {
        "type": "BlockStored", "block_hashes": list(hashes), "parent_block_hash": None,
        "token_ids": [1, 2] * len(hashes), "block_size": 2, "lora_id": None, "medium": "GPU",
        "lora_name": None,
    }  # fmt: skip
    return msgpack.packb([ts, [event], rank])


class Hostile:
    """PUB and ROUTER. `send` publishes; the fields say how the replay answers.

    ``topic_frame``: four frames an answer, else three. ``silent``: it never answers. ``holes``:
    seqs that one answer leaves out (each once). ``end``: whether answers end with their marker.
    ``garbled``: frames that an answer begins with. ``requests`` and ``answered``: the seqs asked
    for, and the batches handed to the ROUTER.

    ``lossy``: the ROUTER has libzmq's default high-water mark and drops what its queue does not
    take, end markers too, as vLLM's does to 0.32; ``dropped`` counts. ``hwm`` is that of PUB.
    """

    def __init__(
        self, *, events: str = "tcp://127.0.0.1:*", replay: str = "tcp://127.0.0.1:*",
        buffer: int = 10_000, lossy: bool = False, topic: bytes = b"kv@pod-a@tiny", hwm: int = 0,
    ) -> None:  # fmt: skip
        self.topic = topic
        self.buffer: deque[tuple[int, bytes]] = deque(maxlen=buffer)
        self.topic_frame = True
        self.silent = False
        self.end = True
        self.holes: set[int] = set()
        self.garbled: list[list[bytes]] = []
        self.requests: list[int] = []
        self.answered = 0
        self.dropped = 0
        self._lossy = lossy
        self._subscribed = False
        self._context = zmq.Context()
        self._lock = threading.Lock()
        self._pub = self._context.socket(zmq.XPUB)
        self._pub.setsockopt(zmq.SNDHWM, hwm)
        self._router = self._context.socket(zmq.ROUTER)
        if lossy:
            # Without it libzmq drops silently, which could not be counted.
            self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)
            self._router.setsockopt(zmq.SNDBUF, 8192)  # a network slower than the engine
        else:
            self._router.setsockopt(zmq.SNDHWM, 0)
        for socket, endpoint in ((self._pub, events), (self._router, replay)):
            socket.setsockopt(zmq.LINGER, 0)
            socket.bind(endpoint)
        self.events = self._pub.getsockopt_string(zmq.LAST_ENDPOINT)
        self.replay = self._router.getsockopt_string(zmq.LAST_ENDPOINT)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def __enter__(self) -> Hostile:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._context.destroy(linger=0)

    def send(
        self, seq: int, data: bytes | None = None, *, wire: bool = True, keep: bool = True
    ) -> None:
        """Publish a batch; lost on the way without ``wire``, not replayed without ``keep``."""
        data = payload(1000.0 + seq, seq) if data is None else data
        with self._lock:
            if keep:
                self.buffer.append((seq, data))
            if wire:
                self._pub.send_multipart([self.topic, seq.to_bytes(8, "big"), data])

    def send_frames(self, frames: Sequence[bytes]) -> None:
        """Publish anything."""
        with self._lock:
            self._pub.send_multipart(list(frames))

    def wait_for_subscriber(self) -> None:
        """Wait until somebody has subscribed; what is sent before does not arrive."""
        if not self._subscribed:
            assert self._pub.poll(30_000)
            self._pub.recv()
            self._subscribed = True

    def _serve(self) -> None:
        while not self._stopping.is_set():
            if self._router.poll(20):
                self._answer(self._router.recv_multipart())

    def _answer(self, frames: list[bytes]) -> None:
        if len(frames) != 3:
            return
        client, start = frames[0], int.from_bytes(frames[2], "big")
        self.requests.append(start)
        if self.silent:
            return
        for garbled in self.garbled:
            self._reply([client, *garbled])
        with self._lock:
            kept = list(self.buffer)
        topic = [self.topic] if self.topic_frame else []
        for seq, data in kept:
            if seq in self.holes:
                self.holes.discard(seq)
            elif seq >= start:
                self._reply([client, b"", *topic, seq.to_bytes(8, "big"), data])
                self.answered += 1
        if self.end:
            self._reply([client, b"", *([b""] if self.topic_frame else []), END, b""])

    def _reply(self, frames: list[bytes]) -> None:
        try:
            self._router.send_multipart(frames, zmq.NOBLOCK if self._lossy else 0)
        except zmq.Again:
            self.dropped += 1
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:  # who asked has gone
                raise
