"""The replay of one endpoint: asked for until what came is whole.

An engine drops answers, and even the end marker, when the reader is slow or its own send queue
overflows (vLLM up to 0.32 serves the replay from a ROUTER with the default high-water mark). So
an answer is drained into memory first and looked at afterwards, and asked for again from the last
seq without a hole.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

import zmq

from kvctl.events import DecodeError, encode_seq, parse_replay
from kvctl.stream.life import Message
from kvctl.stream.sockets import open_dealer

_log = logging.getLogger(__name__)

StreamKey: TypeAlias = tuple[str, int]
"""Pod and DP rank."""

TIMEOUT_S = 2.0
"""How long the first message of an answer may take. An idle engine looks every 100 ms."""

TRIES = 3
"""Requests in a row without progress before the replay is given up."""

# An engine sends its answer in one go: a shorter silence within one is its end.
_QUIET_SHARE = 0.25

# Without end marker: an answer cut short by a full queue has at least what the queue holds (1000
# by default). One that brought less was not cut, its marker just does not come.
_CUT_FROM = 100

_PER_TURN = 20_000
_LIMIT_S = 120.0
_LIMIT_BYTES = 1 << 30


class ReplayRequest:
    """One run of requests from ``start`` on. Times are monotonic seconds.

    ``address`` is where to connect for ``endpoint``, if elsewhere. ``decode`` makes a batch of an
    answer's topic, seq and payload. ``batches`` has what came, by stream and seq: ranks that share
    a port share its replay. ``done`` once it is whole or given up; ``whole`` tells which;
    ``silent``: nothing at all ever came.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        start: int,
        now: float,
        *,
        address: str | None = None,
        decode: Callable[[bytes, int, bytes], Message],
        timeout: float = TIMEOUT_S,
        tries: int = TRIES,
    ) -> None:
        self.endpoint = endpoint
        self._address = address or endpoint
        self.start = start
        self.batches: dict[StreamKey, dict[int, Message]] = {}
        self.done = False
        self.whole = False
        self.silent = True
        self.faults: list[str] = []
        self._context = context
        self._decode = decode
        self._timeout = timeout
        self._tries = self._tries_left = tries
        self._began = now
        self._known: set[tuple[int, int]] = set()
        self._drained: list[tuple[bytes, int, bytes]] = []
        self._bytes = 0
        self.socket = self._ask(start, now)

    def _ask(self, start: int, now: float) -> zmq.Socket[bytes]:
        # A socket of its own for each request: no answer to an earlier one can be mixed in.
        socket = open_dealer(self._context, self._address)
        # The empty frame is a REQ socket's delimiter: without it the engine does not answer.
        socket.send_multipart([b"", encode_seq(start)])
        _log.debug("ZMQ replay request to %s from seq %d", self.endpoint, start)
        self._asked = start
        self._heard_at = now
        self._ended = False
        return socket

    def drain(self, now: float) -> None:
        """Take what has come, without waiting; ask again where the answer is over but not whole."""
        for _ in range(_PER_TURN):
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            self._heard_at = now
            self.silent = False
            self._take(frames)
            if self._ended:
                break
        wait = self._timeout * (_QUIET_SHARE if self._drained else 1.0)
        if self._ended or now - self._heard_at >= wait:
            self._conclude(now)
        elif self._bytes > _LIMIT_BYTES or now - self._began > _LIMIT_S:
            self.faults.append("the answer has no end; it is left as it is")
            self._look_at_drained()
            self._finish(whole=False)

    def close(self) -> None:
        """Give up."""
        if not self.done:
            self._finish(whole=False)

    def _take(self, frames: list[bytes]) -> None:
        try:
            answer = parse_replay(frames)
        except DecodeError as error:
            self.faults.append(error.detail)
            return
        if answer is None:
            self._ended = True
        elif answer[1] >= self.start:
            self._drained.append(answer)
            self._bytes += len(answer[2])

    def _conclude(self, now: float) -> None:
        new = self._look_at_drained()
        lacking = [seq for each in self.batches.values() if (seq := _first_hole(each)) is not None]
        if self._ended and not lacking:
            self._finish(whole=True)
            return
        if self._ended:
            start = min(lacking)
            progress = start > self._asked
        else:
            ends = [max(each) + 1 for each in self.batches.values()]
            start = min(lacking + ends, default=self.start)
            progress = new >= _CUT_FROM
        self._tries_left = self._tries if progress else self._tries_left - 1
        if self._tries_left <= 0:
            self._finish(whole=False)
            return
        self.socket.close()
        self.socket = self._ask(start, now)

    def _look_at_drained(self) -> int:
        """Decode what was drained; returns how many batches were new."""
        new = 0
        for topic, seq, payload in self._drained:
            # An answer asked for again repeats most of the last one.
            known = (seq, hash(payload))
            if known in self._known:
                continue
            self._known.add(known)
            message = self._decode(topic, seq, payload)
            batches = self.batches.setdefault((message.wire.pod, message.wire.rank), {})
            if seq not in batches:
                batches[seq] = message
                new += 1
        self._drained = []
        return new

    def _finish(self, *, whole: bool) -> None:
        self.done, self.whole = True, whole
        batches = sum(len(each) for each in self.batches.values())
        how = "whole" if whole else "silent" if self.silent else "not whole"
        _log.debug("ZMQ replay of %s: %d batches, %s", self.endpoint, batches, how)
        self.socket.close()


def _first_hole(batches: dict[int, Message]) -> int | None:
    """The first seq missing between the first and the last that came."""
    first, last = min(batches), max(batches)
    if last - first + 1 == len(batches):
        return None
    seqs = sorted(batches)
    return next(seq + 1 for seq, after in pairwise(seqs) if after != seq + 1)
