"""What the replay told of one stream, as a measure for the batches that came live."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from kvctl.events import position_of
from kvctl.stream.life import Message, engine_time, newer, older


class Place(Enum):
    """Where a live batch belongs, measured by an answer."""

    FITS = auto()
    EARLIER_LIFE = auto()
    LATER_LIFE = auto()


@dataclass(frozen=True)
class SortedLive:
    """Live batches, measured by an answer.

    ``within`` its span, by seq; ``after``: those beyond it or passed already, in order of receipt;
    ``reach``: the highest seq of this life that came live, -1 for none. ``earlier`` and
    ``repeated`` count what is left out: of an earlier life, or twice in ``within``.
    """

    within: dict[int, Message]
    after: list[Message]
    reach: int
    earlier: int
    repeated: int


class Answer:
    """One stream's part of a replay answer, from the seq asked for on.

    ``whole``: it had its end and no hole. The batches of an answer are of one life: the buffer
    lives and dies with the engine's process.
    """

    def __init__(self, messages: Iterable[Message], asked: int, *, whole: bool) -> None:
        self.asked = asked
        self.whole = whole
        self.batches: dict[int, Message] = {}
        for message in messages:
            if message.wire.seq >= asked:
                self.batches.setdefault(message.wire.seq, message)
        self.seqs = sorted(self.batches)
        self.end = self.seqs[-1] if self.seqs else -1

    @property
    def shortfall(self) -> str:
        """Why a batch that it should have brought is not in it."""
        silent = not self.batches and not self.whole
        return "the replay did not answer" if silent else "not in the replay"

    def place(self, message: Message, *, before: bool) -> Place:
        """Of which life a live batch is: within one life, time goes on as the seq does.

        ``before`` says that it came before the answer was asked for: then an answer that is whole
        reaches as far, if it is of the same life.
        """
        there = self.batches.get(message.wire.seq)
        if there is not None:
            if position_of(there) == position_of(message):
                return Place.FITS
            later = newer(message, engine_time(there))
            return Place.LATER_LIFE if later else Place.EARLIER_LIFE
        if before and self.whole and message.wire.seq > self.end:
            return Place.EARLIER_LIFE
        at = bisect_left(self.seqs, message.wire.seq)
        if at > 0 and older(message, self._time(at - 1)):
            return Place.EARLIER_LIFE
        if at < len(self.seqs) and newer(message, self._time(at)):
            return Place.LATER_LIFE
        return Place.FITS

    def sort(self, live: Sequence[Message], next_seq: int, before: int) -> SortedLive:
        """Sort live batches, given in order of receipt, the first ``before`` of them from before
        the answer was asked for; ``next_seq`` is the first not yet passed.

        From the first batch of a later life on, all come after.
        """
        within: dict[int, Message] = {}
        after: list[Message] = []
        reach = -1
        earlier = repeated = 0
        for number, message in enumerate(live):
            seq = message.wire.seq
            place = self.place(message, before=number < before)
            if place is Place.LATER_LIFE:
                after += live[number:]
                break
            if place is Place.EARLIER_LIFE:
                earlier += 1
                continue
            reach = max(reach, seq)
            if not next_seq <= seq <= self.end:
                after.append(message)
            elif seq in within:
                repeated += 1
            else:
                within[seq] = message
        return SortedLive(within, after, reach, earlier, repeated)

    def _time(self, at: int) -> float | None:
        return engine_time(self.batches[self.seqs[at]])


def runs(seqs: Iterable[int]) -> dict[int, int]:
    """First seq and last seq of each run without a hole, from seqs in order."""
    found: dict[int, int] = {}
    first = last = -2
    for seq in seqs:
        if seq != last + 1:
            first = seq
        found[first] = last = seq
    return found
