"""Order for one stream: each seq once, in order; gaps, restarts and late comers found out.

Pure: no sockets, and time is passed in. How a restart shows is in vLLM's ``ZmqEventPublisher``: a
new process counts from 0 again.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvctl.events import Gap, Position, Record, Restart, Undecodable, position_of
from kvctl.stream.answer import Answer, Place, SortedLive, runs
from kvctl.stream.life import Life, Message, engine_time, newer, older
from kvctl.stream.status import StreamCounts
from kvctl.stream.waiting import Waiting

GRACE_S = 0.2
"""How long a missing batch may still arrive by itself before it counts as a gap."""

MAX_HELD = 100_000
"""Batches held behind a hole, or while the replay answers, before the wait is given up."""

COLD_START = "cold start"


class Sequencer:
    """Puts the batches of one (pod, DP rank) in order.

    With ``replay`` the stream begins by catching up from ``since_seq``, and holes are filled from
    the replay: whenever `want` is not None, that seq must be asked for (call `asked` then) and
    the whole answer handed to `replayed`; live batches are held meanwhile. ``grace`` is in the
    unit of the times passed in. With ``resume`` the stream goes on behind that batch, if the engine
    still lives the same life. ``received`` counts live batches, ``last_batch_ns`` is when the last
    of them came.
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
        self.want: int | None = None
        self.counts = StreamCounts()
        self.received = 0
        self.last_batch_ns = 0
        self._replay = replay
        self._since = since_seq
        self._grace = grace
        self._life = Life(resume)
        self._waiting = Waiting()
        self._held: list[Message] = []  # while the replay is awaited, in order of receipt
        self._held_before = 0  # how many of them came before it was asked
        self._reconnected = resume is not None and not replay
        self._replay_ns = 0
        if replay:
            self._ask()

    @property
    def last_seq(self) -> int | None:
        """The last seq given out in this life."""
        return self._life.last_seq

    @property
    def next_seq(self) -> int | None:
        """The seq that comes next; None before the first is known."""
        return self._life.next

    @property
    def held(self) -> int:
        """Batches received but not yet given out."""
        return len(self._held) + len(self._waiting)

    @property
    def _now_ns(self) -> int:
        return max(self.last_batch_ns, self._replay_ns)

    @property
    def settled(self) -> bool:
        """Whether no answer of the replay is awaited and no hole waits to be filled."""
        return self.want is None and not self._waiting

    def feed(self, message: Message, now: float) -> list[Record]:
        """Take a live batch; returns what is in order now."""
        wire = message.wire
        life = self._life
        self.received += 1
        self.last_batch_ns = wire.recv_ns
        if wire.seq == life.next and self.want is None and not self._waiting:
            sign = life.follow(message)
            if sign is None:
                self._count(message)
                return [message]
        out: list[Record] = []
        self._take(message, now, out)
        return out

    def asked(self) -> None:
        """`want` is being asked for now: over a reconnection, the answer knows of all that came
        before, if it is of the same life.
        """
        self._held_before = len(self._held)

    def replayed(
        self, messages: Iterable[Message], whole: bool, now: float, *, recv_ns: int = 0
    ) -> list[Record]:
        """Take the replay's answer from `want` on; ``whole`` if it had its end and no hole.

        A replay that did not answer is an empty answer that is not whole. ``recv_ns`` is when it
        was over, for the gaps and restarts that it shows.
        """
        out: list[Record] = []
        if self.want is not None:
            answer = Answer(messages, self.want, whole=whole)
            self.want = None
            self._replay_ns = max(self._replay_ns, recv_ns)
            self._drop_strays(answer)
            sign = self._other_life(answer)
            if sign is None:
                self._merge(answer, now, out)
            else:
                self._leave_life(answer, sign, out)
            self._held_before = 0
        return out

    def connected(self, *, again: bool) -> None:
        """A connection was made: ask what was missed.

        If ``again``, perhaps to another life: the replay tells, or the next batch.
        """
        self._reconnected = self._reconnected or again
        if self._replay and self.want is None:
            self._ask()

    def tick(self, now: float) -> list[Record]:
        """Let time pass: a hole that is older than the grace is asked for, or given up."""
        out: list[Record] = []
        while self._waiting and self.want is None:
            if now - self._waiting.since < self._grace:
                break
            if self._replay:
                self._ask()
            else:
                self._give_up_hole(out)
        return out

    def flush(self) -> list[Record]:
        """The end: everything that is held, with what is missing declared."""
        self._replay = False
        out = self.replayed((), False, 0.0)
        while self._waiting:
            self._give_up_hole(out)
        return out

    def mark_gap(self, gap: Gap) -> list[Record]:
        """A gap that a capture tells of: what it says is missing is not waited for."""
        if gap.recovered:
            self.counts.recovered += gap.missing
            return [gap]
        out: list[Record] = []
        life = self._life
        if life.next is not None:
            if gap.to_seq < life.next:
                return []
            while self._waiting and self._waiting.first < gap.from_seq:
                self._give_up_hole(out)
            if life.next < gap.from_seq:
                self._lose(life.next, gap.from_seq - 1, "not in the capture", out)
        while self._waiting and self._waiting.first <= gap.to_seq:
            self._waiting.take(self._waiting.first)
            self.counts.late += 1
        self._count_lost(gap)
        out.append(gap)
        life.next = gap.to_seq + 1
        self._drain(out)
        return out

    def mark_restart(self, restart: Restart) -> list[Record]:
        """A restart that a capture tells of."""
        out: list[Record] = []
        while self._waiting:
            self._give_up_hole(out)
        self._begin_life(restart, out)
        return out

    # -- live -----------------------------------------------------------------------------------

    def _take(self, message: Message, now: float, out: list[Record]) -> None:
        life = self._life
        seq = message.wire.seq
        if self.want is not None:
            self._held.append(message)
            if len(self._held) > MAX_HELD:
                out += self.replayed((), False, now)
        elif life.next is None:
            if seq > self._since:
                self._lose(self._since, seq - 1, COLD_START, out)
            self._emit(message, out)
        elif seq < life.next:
            self._behind(message, now, out)
        elif (sign := self._another_life(message)) is not None:
            self._restart(sign, message, now, out)
        elif seq == life.next:
            self._emit(message, out)
            if self._waiting:
                self._drain(out)
        else:
            self._wait(message, now, out)

    def _wait(self, message: Message, now: float, out: list[Record]) -> None:
        """Hold a batch that is ahead of its turn."""
        seq = message.wire.seq
        there = self._waiting.get(seq)
        if there is None:
            self._waiting.add(message, now)
            if len(self._waiting) > MAX_HELD:
                self._give_up_hole(out)
        elif position_of(there) == position_of(message):
            self.counts.duplicates += 1
        elif newer(message, engine_time(there)):
            self._restart(f"another batch came under seq {seq}", message, now, out)
        else:
            self.counts.late += 1

    def _behind(self, message: Message, now: float, out: list[Record]) -> None:
        """A seq that was passed: a duplicate, a late comer, or a new life."""
        life = self._life
        seq = message.wire.seq
        if life.last is None:  # nothing was seen yet, we only asked for later ones
            self._emit(message, out)
            return
        known = life.recall(seq)
        if known == position_of(message):
            self.counts.duplicates += 1
            return
        # The same seq with other contents, or any that was made after the last: another life.
        # The clock may have been set back over a restart, but a new connection brings nothing old.
        than = life.last_ts if known is None or known.ts is None else known.ts
        unsure = than is None and engine_time(message) is not None
        if unsure or newer(message, than) or self._reconnected:
            self._restart(f"seq went back from {life.last_seq} to {seq}", message, now, out)
        else:
            self.counts.late += 1

    def _another_life(self, message: Message) -> str | None:
        """Why a batch ahead cannot be of this life: foreign, or newer than one of a higher seq."""
        if self._waiting:
            seq, top = message.wire.seq, self._waiting.get(self._waiting.last)
            if top is not None and seq < top.wire.seq and newer(message, engine_time(top)):
                return f"seq went back from {top.wire.seq} to {seq}"
        return self._life.foreign(message)

    def _restart(self, reason: str, message: Message, now: float, out: list[Record]) -> None:
        while self._waiting:
            self._give_up_hole(out)
        self._begin_life(self._restarted(reason), out)
        self._take(message, now, out)

    def _restarted(self, reason: str) -> Restart:
        return Restart(self._now_ns, self.pod, self.rank, self.last_seq, reason)

    def _begin_life(self, restart: Restart, out: list[Record]) -> None:
        out.append(restart)
        self.counts.restarts += 1
        self._life = Life()
        self._since = 0
        self._reconnected = False
        self.want = 0 if self._replay else None

    def _emit(self, message: Message, out: list[Record]) -> None:
        self._life.add(message)
        self._count(message)
        out.append(message)

    def _count(self, message: Message) -> None:
        self._reconnected = False
        self.counts.batches += 1
        if isinstance(message, Undecodable):
            self.counts.undecodable += 1

    def _drain(self, out: list[Record]) -> None:
        while (next_seq := self._life.next) is not None and next_seq in self._waiting:
            self._emit(self._waiting.take(next_seq), out)

    def _give_up_hole(self, out: list[Record], reason: str = "lost on the way") -> None:
        """Declare what is missing before the first that waits, and go on with that."""
        next_seq = self._life.next
        assert next_seq is not None
        first = self._waiting.first
        self._lose(next_seq, first - 1, reason, out)
        self._life.next = first
        self._drain(out)

    def _lose(self, first: int, last: int, reason: str, out: list[Record]) -> None:
        gap = Gap(self._now_ns, self.pod, self.rank, first, last, False, reason)
        self._count_lost(gap)
        out.append(gap)

    def _count_lost(self, gap: Gap) -> None:
        self.counts.gaps += 1
        self.counts.missing += gap.missing

    # -- replay ---------------------------------------------------------------------------------

    def _ask(self) -> None:
        """From the last batch seen, so that the answer shows whether this is the same life."""
        last, next_seq = self._life.last_seq, self._life.next
        self.want = last if last is not None else self._since if next_seq is None else next_seq

    def _drop_strays(self, answer: Answer) -> None:
        """Batches of a life before this one, come late: older than what was given out last."""
        last_ts = self._life.last_ts
        for message in self._waiting.messages():
            if (
                older(message, last_ts)
                and answer.place(message, before=self._reconnected) is Place.EARLIER_LIFE
            ):
                self._waiting.take(message.wire.seq)
                self.counts.late += 1

    def _other_life(self, answer: Answer) -> str | None:
        """Why the answer is of another life than ours; None if it can be of ours."""
        life = self._life
        if life.last is None:
            return None
        there = answer.batches.get(answer.asked)
        known = life.recall(answer.asked)
        if there is not None and known is not None and known != position_of(there):
            return f"the replay holds another batch under seq {answer.asked}"
        if not answer.batches and answer.whole and answer.asked == life.last_seq:
            return "the replay ends before the last seq seen"
        for message in self._waiting.messages():
            if answer.place(message, before=self._reconnected) is Place.EARLIER_LIFE:
                return "the replay does not hold what came last"
        signs = (life.foreign(message) for message in answer.batches.values())
        return next((sign for sign in signs if sign is not None), None)

    def _leave_life(self, answer: Answer, sign: str, out: list[Record]) -> None:
        """What waits of the old life ends it, what is of the new one waits for its replay."""
        new = []
        if answer.batches:
            for message in self._waiting.messages():
                if answer.place(message, before=self._reconnected) is not Place.EARLIER_LIFE:
                    new.append(self._waiting.take(message.wire.seq))
        while self._waiting:
            self._give_up_hole(out)
        self._begin_life(self._restarted(sign), out)
        self._held[:0] = new

    def _merge(self, answer: Answer, now: float, out: list[Record]) -> None:
        """Give out the answer, with what came live in its places, then what came live after it."""
        # What was lacking when we asked, and still is, will not come. Of what came since we asked
        # more may be on the way, unless the replay has failed.
        decided = max(answer.end, self._waiting.last) if answer.whole else None
        before = len(self._waiting) + self._held_before if self._reconnected else 0
        live = self._waiting.take_all() + self._held
        self._held = []
        next_seq = answer.asked if self._life.next is None else self._life.next
        sorted_live = answer.sort(live, next_seq, before)
        self.counts.late += sorted_live.earlier
        self.counts.duplicates += sorted_live.repeated
        self._give_out(answer, sorted_live, out)
        if answer.batches or answer.whole:
            self._reconnected = False
        for message in sorted_live.after:
            self._take(message, now, out)
        while self.want is None and self._waiting:
            if decided is not None and self._waiting.first > decided:
                break
            self._give_up_hole(out, answer.shortfall)

    def _give_out(self, answer: Answer, live: SortedLive, out: list[Record]) -> None:
        life = self._life
        begins = life.untouched
        if life.next is None and (answer.batches or answer.whole):
            life.next = answer.asked
        cold = life.last is None
        # Before the reach of what came live, batches that did not come live were lost; over a
        # reconnection all of them were. What the first answer brings is the past, no loss.
        reach = -1 if begins else answer.end + 1 if self._reconnected else live.reach
        recovered = runs(
            seq
            for seq in answer.seqs
            if seq < reach and seq not in live.within and seq >= (life.next or 0)
        )
        for seq, message in sorted({**answer.batches, **live.within}.items()):
            assert life.next is not None
            if seq < life.next:
                continue
            if seq > life.next:
                self._lose(life.next, seq - 1, _why_lost(answer, seq, cold), out)
            if (run_end := recovered.get(seq)) is not None:
                gap = Gap(self._now_ns, self.pod, self.rank, seq, run_end, True, "from the replay")
                self.counts.recovered += gap.missing
                out.append(gap)
            self._emit(message, out)


def _why_lost(answer: Answer, before: int, cold: bool) -> str:
    if before > answer.seqs[0]:
        return answer.shortfall
    past = "older than the replay buffer"
    return f"{COLD_START}: {past}" if cold else past
