"""The replay of one endpoint: asked for until what came is whole.

An engine drops answers, and even the end marker, when the reader is slow or its own send queue
overflows (vLLM up to 0.32 serves the replay from a ROUTER with the default high-water mark). So
everything is drained into memory first, and asked for again from the last seq without a hole.
"""

from __future__ import annotations

import zmq

from kvctl.events import DecodeError, encode_seq, parse_replay
from kvctl.events.decode import MAX_PAYLOAD
from kvctl.stream.source import speaks_ipv6

QUIET_S = 1.0
"""Without a message for so long an answer without end marker counts as over."""

TRIES = 3
"""Requests in a row that bring nothing new before the replay is given up."""

MAX_MESSAGE = MAX_PAYLOAD + 1024 * 1024


class ReplayRequest:
    """One run of requests from a start seq on. Times are monotonic seconds.

    ``answers`` maps seq to (topic, payload). ``done`` once it is whole or given up; ``whole``
    tells which; ``silent`` that nothing at all ever came.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        start: int,
        now: float,
        tries: int = TRIES,
    ) -> None:
        self.endpoint = endpoint
        self.answers: dict[int, tuple[bytes, bytes]] = {}
        self.done = False
        self.whole = False
        self.silent = True
        self.faults: list[str] = []
        self._context = context
        self._start = start
        self._tries = self._tries_left = tries
        self.socket = self._ask(start, now)

    def _ask(self, start: int, now: float) -> zmq.Socket[bytes]:
        # A socket of its own for each request: no answer to an earlier one can be mixed in.
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE)
        socket.setsockopt(zmq.IPV6, speaks_ipv6(self.endpoint))
        socket.connect(self.endpoint)
        # The empty frame is a REQ socket's delimiter: without it the engine does not answer.
        socket.send_multipart([b"", encode_seq(start)])
        self._last_heard = now
        self._progress = False
        self._ended = False
        return socket

    def drain(self, now: float) -> None:
        """Take what has come, without waiting."""
        while True:
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            self._last_heard = now
            self.silent = False
            try:
                answer = parse_replay(frames)
            except DecodeError as error:
                self.faults.append(error.detail)
                continue
            if answer is None:
                self._ended = True
                break
            topic, seq, payload = answer
            if seq >= self._start and seq not in self.answers:
                self.answers[seq] = (topic, payload)
                self._progress = True
        if self._ended or now - self._last_heard >= QUIET_S:
            self._conclude(now)

    def _conclude(self, now: float) -> None:
        hole = self._first_hole()
        if self._ended and hole is None:
            self._finish(whole=True)
            return
        self._tries_left = self._tries if self._progress else self._tries_left - 1
        if self._tries_left <= 0:
            self._finish(whole=False)
            return
        if hole is None:
            hole = max(self.answers) + 1 if self.answers else self._start
        self.socket.close()
        self.socket = self._ask(hole, now)

    def _first_hole(self) -> int | None:
        """The first seq missing between the first and the last that came."""
        if not self.answers:
            return None
        first, last = min(self.answers), max(self.answers)
        if last - first + 1 == len(self.answers):
            return None
        return next(seq for seq in range(first, last) if seq not in self.answers)

    def _finish(self, *, whole: bool) -> None:
        self.done, self.whole = True, whole
        self.socket.close()

    def close(self) -> None:
        """Give up."""
        if not self.done:
            self._finish(whole=False)
