"""What is remembered of one life of a stream, to tell its batches from those of another."""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from kvctl.events import Batch, BlockStored, Position, Undecodable, position_of

Message: TypeAlias = Batch | Undecodable

_REMEMBERED = 256


class Life:
    """One run of the engine's publisher: seqs from 0 on, one topic, one form of block hashes.

    ``next`` is the seq that comes next, None before the first is known; ``last`` is the last batch
    given out, or the one that an earlier run of ours had come to (``resumed``).
    """

    def __init__(self, resumed: Position | None = None) -> None:
        self.next = None if resumed is None else resumed.seq + 1
        self.last = resumed
        self.last_ts = None if resumed is None else resumed.ts
        self._resumed = resumed
        self._topic = b""
        self._form: int | None = None
        self._positions = deque([] if resumed is None else [resumed], maxlen=_REMEMBERED)

    @property
    def untouched(self) -> bool:
        """Whether nothing of it was given out yet, in this run of ours."""
        return self.last is self._resumed

    @property
    def last_seq(self) -> int | None:
        """The last seq given out."""
        return None if self.last is None else self.last.seq

    def follow(self, message: Message) -> str | None:
        """Take the batch as given out; or leave it, and say why it is `foreign`."""
        topic = message.wire.topic
        form = hash_form(message)
        if topic != self._topic or form != self._form:
            if (sign := self._foreign(topic, form)) is not None:
                return sign
            self._topic = topic or self._topic
            self._form = self._form if form is None else form
        self.last = last = position_of(message)
        if last.ts is not None:
            self.last_ts = last.ts
        self.next = last.seq + 1
        self._positions.append(last)
        return None

    def add(self, message: Message) -> None:
        """Take the batch as given out, foreign or not."""
        if self.follow(message) is not None:
            self._topic, self._form = b"", None
            self.follow(message)

    def recall(self, seq: int) -> Position | None:
        """The position of a batch given out lately."""
        return next((each for each in reversed(self._positions) if each.seq == seq), None)

    def foreign(self, message: Message) -> str | None:
        """Why the batch cannot be of this life whatever its seq; None if it can."""
        return self._foreign(message.wire.topic, hash_form(message))

    def _foreign(self, topic: bytes, form: int | None) -> str | None:
        if topic and self._topic and topic != self._topic:
            return "the topic changed"
        if form is not None and self._form is not None and form != self._form:
            return "the form of block hashes changed"
        return None


def engine_time(message: Message) -> float | None:
    """The engine's clock when it made the batch, in seconds; None if it cannot be read."""
    return message.events.ts if isinstance(message, Batch) else None


def newer(message: Message, than: float | None) -> bool:
    """Whether the batch was surely made later than ``than``."""
    ts = engine_time(message)
    return ts is not None and than is not None and ts > than


def older(message: Message, than: float | None) -> bool:
    """Whether the batch was surely made earlier than ``than``."""
    ts = engine_time(message)
    return ts is not None and than is not None and ts < than


def hash_form(message: Message) -> int | None:
    """0 for int hashes, the length of byte hashes, None for a batch that stores nothing."""
    if isinstance(message, Batch):
        for event in message.events.events:
            if isinstance(event, BlockStored) and event.block_hashes:
                first = event.block_hashes[0]
                return 0 if isinstance(first, int) else len(first)
    return None
