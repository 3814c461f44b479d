"""Order for one stream: each seq once, in order; gaps, restarts and late comers found out.

Pure: no sockets, and time (monotonic seconds) is passed in. How a restart shows is in vLLM's
``ZmqEventPublisher``: a new process counts from 0 again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TypeAlias

from kvctl.events import (
    Batch,
    BlockStored,
    Gap,
    Position,
    Record,
    Restart,
    Undecodable,
    position_of,
)

Message: TypeAlias = Batch | Undecodable

GRACE_S = 0.2
"""How long a missing batch may still arrive by itself before it counts as a gap."""

MAX_WAITING = 100_000
"""Batches held behind a hole before the hole is given up."""

_REMEMBERED = 256


class Sequencer:
    """Puts the batches of one (pod, DP rank) in order.

    With ``replay`` the stream begins by catching up from ``since_seq``, and holes are filled from
    the replay: whenever `want` is not None, its seq must be asked for and the whole answer handed
    to `replayed`. ``grace`` is in the unit of the times passed in. With ``resume`` it goes on
    behind that batch, if the engine still lives the same life.
    """

    def __init__(
        self,
        pod: str,
        rank: int,
        *,
        replay: bool = False,
        since_seq: int = 0,
        grace: float = GRACE_S,
        resume: Position | None = None,
    ) -> None:
        self.pod = pod
        self.rank = rank
        self.want: int | None = since_seq if replay else None
        self.duplicates = 0
        self.late = 0
        self._replay = replay
        self._since = since_seq
        self._grace = grace
        self._next: int | None = None
        self._last_ts: float | None = None
        self._topic = b""
        self._hash_kind: int | None = None
        self._seen: deque[Position] = deque(maxlen=_REMEMBERED)
        self._waiting: dict[int, Message] = {}
        self._hole_since: float | None = None
        self._held: list[Message] = []
        self._recv_ns = 0
        if resume is not None:
            self._next = resume.seq + 1
            self._last_ts = resume.ts
            self._seen.append(resume)
            self.want = resume.seq if replay else None

    @property
    def last_seq(self) -> int | None:
        """The last seq given out in this life."""
        return None if self._next is None or not self._seen else self._next - 1

    @property
    def catching_up(self) -> bool:
        """Whether an answer of the replay is awaited."""
        return self.want is not None

    @property
    def held(self) -> int:
        """Batches received but not yet given out."""
        return len(self._held) + len(self._waiting)

    def feed(self, message: Message, now: float) -> list[Record]:
        """Take a live batch; returns what is in order now."""
        self._recv_ns = message.wire.recv_ns
        if self.want is not None:
            self._held.append(message)
            return []
        out: list[Record] = []
        self._live(message, now, out)
        return out

    def replayed(self, messages: Iterable[Message], whole: bool, now: float) -> list[Record]:
        """Take the replay's answer from `want` on; ``whole`` if it had its end and no hole."""
        asked, self.want = self.want, None
        answer = {message.wire.seq: message for message in messages}
        self._recv_ns = max((m.wire.recv_ns for m in answer.values()), default=self._recv_ns)
        out: list[Record] = []
        if self._next is None:
            self._begin(answer, whole, asked or 0, out)
        elif self._continues(answer, whole, asked or 0, out):
            self._fill(answer, out)
        if self.want is None:
            self._release(now, out)
        return out

    def reconnected(self) -> None:
        """The connection was lost and made anew: ask whether the life goes on."""
        if self._replay and self.want is None:
            self._ask()

    def tick(self, now: float) -> list[Record]:
        """Let time pass: a hole that is older than the grace is asked for, or given up."""
        if (
            self._hole_since is None
            or self.want is not None
            or now - self._hole_since < self._grace
        ):
            return []
        if self._replay:
            self._ask()
            return []
        out: list[Record] = []
        self._give_up_hole(out)
        return out

    def flush(self) -> list[Record]:
        """The end: everything that is held, with what is missing declared."""
        self.want, self._replay = None, False
        out: list[Record] = []
        self._release(0.0, out)
        while self._waiting:
            self._give_up_hole(out)
        return out

    def mark_gap(self, gap: Gap) -> list[Record]:
        """A gap that a capture tells of: what it says is missing is not waited for."""
        out: list[Record] = []
        if not gap.recovered and (self._next is None or gap.to_seq >= self._next):
            out.append(gap)
            self._next = gap.to_seq + 1
            self._drain(out)
        elif gap.recovered:
            out.append(gap)
        return out

    def mark_restart(self, restart: Restart) -> list[Record]:
        """A restart that a capture tells of."""
        out = self.flush()
        out.append(restart)
        self._new_life()
        return out

    # -- live -----------------------------------------------------------------------------------

    def _live(self, message: Message, now: float, out: list[Record], held: bool = False) -> None:
        wire = message.wire
        seq = wire.seq
        if self._next is None:
            if seq > self._since:
                out.append(self._gap(self._since, seq - 1, False, "cold start"))
            self._emit(message, out)
        elif seq == self._next and not (held and self._older(message)):
            if (sign := self._other_life(message)) is None:
                self._emit(message, out)
                if self._waiting:
                    self._drain(out)
            else:
                self._restart(sign, message, now, out)
        elif seq > self._next:
            if held and self._older(message):
                self.late += 1
            elif (sign := self._other_life(message)) is not None:
                self._restart(sign, message, now, out)
            else:
                self._waiting[seq] = message
                if self._hole_since is None:
                    self._hole_since = now
                if len(self._waiting) > MAX_WAITING:
                    self._give_up_hole(out)
        else:
            self._behind(message, now, out)

    def _behind(self, message: Message, now: float, out: list[Record]) -> None:
        """A seq that was passed: a duplicate, a late comer, or a new life."""
        seq = message.wire.seq
        known = next((seen for seen in self._seen if seen.seq == seq), None)
        if known is not None and known == position_of(message):
            self.duplicates += 1
            return
        # The same seq with other contents, or any that was sent after the last: another life.
        than = self._last_ts if known is None else known.ts
        if (ts := _ts(message)) is not None and (than is None or ts > than):
            self._restart(f"seq went back from {self.last_seq} to {seq}", message, now, out)
        else:
            self.late += 1

    def _other_life(self, message: Message) -> str | None:
        topic = message.wire.topic
        if topic and self._topic and topic != self._topic:
            return "the topic changed"
        if self._waiting and self._newer_than_what_follows(message):
            return f"seq went back to {message.wire.seq}"
        kind = _hash_kind(message)
        if kind is not None and self._hash_kind is not None and kind != self._hash_kind:
            return "the form of block hashes changed"
        return None

    def _newer_than_what_follows(self, message: Message) -> bool:
        """Whether a batch held behind a hole has a higher seq, but was sent earlier."""
        ts = _ts(message)
        return ts is not None and any(
            seq > message.wire.seq and (other := _ts(waiting)) is not None and other < ts
            for seq, waiting in self._waiting.items()
        )

    def _older(self, message: Message) -> bool:
        """Whether a batch held back while catching up is older than what the replay brought."""
        ts = _ts(message)
        return ts is not None and self._last_ts is not None and ts < self._last_ts

    def _restart(self, reason: str, message: Message, now: float, out: list[Record]) -> None:
        while self._waiting:
            self._give_up_hole(out)
        out.append(self._restarted(reason))
        if self._replay:
            self._held.append(message)
        else:
            self._live(message, now, out)

    def _restarted(self, reason: str) -> Restart:
        restart = Restart(self._recv_ns, self.pod, self.rank, self.last_seq, reason)
        self._new_life()
        return restart

    def _new_life(self) -> None:
        self._next = None
        self._since = 0
        self._last_ts = None
        self._topic = b""
        self._hash_kind = None
        self._seen.clear()
        self._waiting.clear()
        self._hole_since = None
        self.want = 0 if self._replay else None

    def _emit(self, message: Message, out: list[Record]) -> None:
        wire = message.wire
        self._next = wire.seq + 1
        self._topic = wire.topic or self._topic
        if isinstance(message, Batch):
            self._last_ts = message.events.ts
            if self._hash_kind is None:
                self._hash_kind = _hash_kind(message)
        self._seen.append(position_of(message))
        out.append(message)

    def _drain(self, out: list[Record]) -> None:
        while self._next is not None and (message := self._waiting.pop(self._next, None)):
            self._emit(message, out)
        if not self._waiting:
            self._hole_since = None

    def _give_up_hole(self, out: list[Record], reason: str = "lost on the way") -> None:
        first = min(self._waiting)
        assert self._next is not None
        out.append(self._gap(self._next, first - 1, False, reason))
        self._next = first
        self._drain(out)

    # -- replay ---------------------------------------------------------------------------------

    def _ask(self) -> None:
        """From the last batch seen, so that the answer shows whether this is the same life."""
        last = self.last_seq
        self.want = self._since if self._next is None else self._next if last is None else last

    def _begin(
        self, answer: dict[int, Message], whole: bool, asked: int, out: list[Record]
    ) -> None:
        if not answer:
            if whole:
                self._next = asked
            return
        first = min(answer)
        if first > asked:
            out.append(self._gap(asked, first - 1, False, "older than the replay buffer"))
        self._next = first
        self._fill(answer, out, initial=True)

    def _continues(
        self, answer: dict[int, Message], whole: bool, asked: int, out: list[Record]
    ) -> bool:
        """Whether the answer is of the life we know; if not, the new one is asked for."""
        known = next((seen for seen in self._seen if seen.seq == asked), None)
        there = answer.get(asked)
        if there is not None and known is not None and known != position_of(there):
            reason = "the replay holds other batches under the same seqs"
        elif not answer and whole and known is not None:
            reason = "the replay ends before the last seq seen"
        elif any(self._disowned(each, answer, whole) for each in self._waiting.values()):
            reason = "the replay does not hold what came last"
        else:
            return True
        # What the new life's replay holds comes with it; the rest ends the old one.
        self._waiting = {
            seq: each for seq, each in self._waiting.items() if self._disowned(each, answer, whole)
        }
        while self._waiting:
            self._give_up_hole(out)
        out.append(self._restarted(reason))
        return False

    def _disowned(self, waiting: Message, answer: dict[int, Message], whole: bool) -> bool:
        """Whether the answer shows that a batch held behind a hole is of an earlier life."""
        there = answer.get(waiting.wire.seq)
        if there is not None:
            return position_of(there) != position_of(waiting)
        return whole and not any(seq > waiting.wire.seq for seq in answer)

    def _fill(self, answer: dict[int, Message], out: list[Record], initial: bool = False) -> None:
        """Give out what the answer brings, each hole in it declared."""
        assert self._next is not None
        hole_end = min(self._waiting, default=None)
        for seq in sorted(answer):
            if seq < self._next:
                continue
            if seq > self._next:
                out.append(self._gap(self._next, seq - 1, False, "not in the replay"))
            elif hole_end is not None and seq < hole_end and not initial:
                end = seq
                while end + 1 in answer and end + 1 < hole_end:
                    end += 1
                out.append(self._gap(seq, end, True, "from the replay"))
                hole_end = None
            self._emit(answer[seq], out)
            self._waiting.pop(seq, None)
        self._drain(out)

    def _release(self, now: float, out: list[Record]) -> None:
        """After catching up: the holes that stay are declared, then the held go their way."""
        while self._waiting:
            self._give_up_hole(out, "not in the replay" if self._replay else "lost on the way")
        held, self._held = self._held, []
        for number, message in enumerate(held):
            self._live(message, now, out, held=True)
            if self.want is not None:
                self._held += held[number + 1 :]
                return

    def _gap(self, first: int, last: int, recovered: bool, reason: str) -> Gap:
        return Gap(self._recv_ns, self.pod, self.rank, first, last, recovered, reason)


def _ts(message: Message) -> float | None:
    return message.events.ts if isinstance(message, Batch) else None


def _hash_kind(message: Message) -> int | None:
    """0 for int hashes, the length of byte hashes, None for a batch that stores nothing."""
    if isinstance(message, Batch):
        for event in message.events.events:
            if isinstance(event, BlockStored) and event.block_hashes:
                first = event.block_hashes[0]
                return 0 if isinstance(first, int) else len(first)
    return None
