"""A proxy between engines and a subscriber that loses, doubles, delays, reorders and cuts."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import Counter
from dataclasses import dataclass
from random import Random

import zmq


@dataclass(frozen=True)
class Rates:
    """Chances per message. ``delay`` holds one back for up to ``delay_s``: others overtake it.
    ``cut`` closes the subscriber's connection, and what comes until it is back is lost."""

    drop: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.0
    delay_s: float = 0.05
    cut: float = 0.0


NOTHING = Rates()


class LossyProxy:
    """One thread that forwards the events of many engines, each to a port of its own."""

    def __init__(self, upstreams: list[str], rates: Rates, seed: int) -> None:
        self.rates = rates
        self.faults: Counter[str] = Counter()
        self._random = Random(seed)
        self._context = zmq.Context()
        self._poller = zmq.Poller()
        self._subs: dict[zmq.Socket, int] = {}
        self._pubs: list[zmq.Socket] = []
        self.endpoints: list[str] = []
        self._held: list[tuple[float, int, int, list[bytes]]] = []
        self._order = itertools.count()
        self._cuts: set[int] = set()
        for at, upstream in enumerate(upstreams):
            sub = self._context.socket(zmq.SUB)
            sub.setsockopt(zmq.RCVHWM, 0)
            sub.subscribe(b"")
            sub.connect(upstream)
            self._subs[sub] = at
            self._poller.register(sub, zmq.POLLIN)
            pub = self._publisher()
            port = pub.bind_to_random_port("tcp://127.0.0.1")
            self._pubs.append(pub)
            self.endpoints.append(f"tcp://127.0.0.1:{port}")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cut(self, at: int) -> None:
        """Cut one subscriber's connection soon."""
        self._cuts.add(at)

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        for socket in [*self._subs, *self._pubs]:
            socket.close(0)
        self._context.term()

    def _publisher(self) -> zmq.Socket:
        pub = self._context.socket(zmq.PUB)
        pub.setsockopt(zmq.SNDHWM, 0)
        pub.setsockopt(zmq.LINGER, 0)
        return pub

    def _run(self) -> None:
        while not self._stopping.is_set():
            for socket, _events in self._poller.poll(2):
                while True:
                    try:
                        frames = socket.recv_multipart(zmq.NOBLOCK)
                    except zmq.Again:
                        break
                    self._forward(self._subs[socket], frames)
            now = time.monotonic()
            while self._held and self._held[0][0] <= now:
                _due, _number, at, frames = heapq.heappop(self._held)
                self._pubs[at].send_multipart(frames)
            while self._cuts:
                self._cut(self._cuts.pop())

    def _forward(self, at: int, frames: list[bytes]) -> None:
        rates, chance = self.rates, self._random.random
        if chance() < rates.drop:
            self.faults["dropped"] += 1
            return
        if chance() < rates.delay:
            self.faults["delayed"] += 1
            self._hold(at, frames)
        else:
            self._pubs[at].send_multipart(frames)
        if chance() < rates.duplicate:
            self.faults["duplicated"] += 1
            self._hold(at, frames)
        if chance() < rates.cut:
            self._cut(at)

    def _hold(self, at: int, frames: list[bytes]) -> None:
        due = time.monotonic() + self._random.random() * self.rates.delay_s
        heapq.heappush(self._held, (due, next(self._order), at, frames))

    def _cut(self, at: int) -> None:
        self.faults["cut"] += 1
        self._pubs[at].close(0)
        self._pubs[at] = self._publisher()
        for _ in range(200):
            try:
                self._pubs[at].bind(self.endpoints[at])
                return
            except zmq.ZMQError:
                time.sleep(0.01)  # the old socket is not quite gone
        raise RuntimeError(f"{self.endpoints[at]} cannot be bound again")
