"""The batches of one stream that came ahead of their turn."""

from __future__ import annotations

import heapq

from kvctl.stream.life import Message


class Waiting:
    """Batches behind a hole, by seq, with the time of their arrival."""

    def __init__(self) -> None:
        self._batches: dict[int, tuple[Message, float]] = {}
        self._seqs: list[int] = []  # a heap; those taken out are dropped when they come up
        self._top = -1

    def __len__(self) -> int:
        return len(self._batches)

    def __contains__(self, seq: int) -> bool:
        return seq in self._batches

    def add(self, message: Message, now: float) -> None:
        """Let a batch wait whose seq does not wait yet."""
        seq = message.wire.seq
        self._batches[seq] = (message, now)
        heapq.heappush(self._seqs, seq)
        self._top = max(self._top, seq)

    def get(self, seq: int) -> Message | None:
        """The batch that waits under a seq."""
        found = self._batches.get(seq)
        return None if found is None else found[0]

    def take(self, seq: int) -> Message:
        """The batch that waits under a seq, which waits no longer."""
        message, _ = self._batches.pop(seq)
        if not self._batches:
            self._seqs, self._top = [], -1
        elif seq == self._top:
            self._top = max(self._batches)
        return message

    def take_all(self) -> list[Message]:
        """All of them, in order of arrival; none waits any longer."""
        messages = self.messages()
        self._batches, self._seqs, self._top = {}, [], -1
        return messages

    def messages(self) -> list[Message]:
        """All of them, in order of arrival."""
        return [message for message, _ in self._batches.values()]

    @property
    def first(self) -> int:
        """The lowest seq that waits."""
        while self._seqs[0] not in self._batches:
            heapq.heappop(self._seqs)
        return self._seqs[0]

    @property
    def last(self) -> int:
        """The highest seq that waits; -1 for none."""
        return self._top

    @property
    def since(self) -> float:
        """When the batch of the lowest seq came."""
        return self._batches[self.first][1]
