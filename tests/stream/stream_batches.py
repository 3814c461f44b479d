"""Batches and a wire to carry them, without sockets."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hostile import payload

from kvctl.events import Batch, Gap, Record, Restart, Undecodable, WireBatch, decode_record
from kvctl.stream import Sequencer


def message(
    seq: int, life: int = 0, *hashes: int | bytes, topic: bytes = b"kv@a@m", ts: float | None = None
) -> Batch | Undecodable:
    """A batch of one store, made a second after the one before; lives are 1000 s apart."""
    ts = 1000.0 * (life + 1) + seq if ts is None else ts
    return decode_record(
        WireBatch(int(ts * 1e9), "pod-a", 0, topic, seq, payload(ts, *(hashes or (seq,))))
    )


def messages(seqs: Sequence[int], life: int = 0) -> list[Batch | Undecodable]:
    return [message(seq, life) for seq in seqs]


def junk(seq: int) -> Batch | Undecodable:
    return decode_record(WireBatch(1, "pod-a", 0, b"kv@a@m", seq, b"junk"))


def shown(records: Sequence[Record]) -> list[object]:
    """Batches as (life, seq), gaps as (from, to, recovered), restarts as a word."""
    out: list[object] = []
    for record in records:
        if isinstance(record, Batch):
            out.append((int(record.events.ts // 1000) - 1, record.wire.seq))
        elif isinstance(record, Gap):
            out.append((record.from_seq, record.to_seq, record.recovered))
        elif isinstance(record, Restart):
            out.append("restart")
    return out


class Wire:
    """An engine of several lives, behind a wire that drops, repeats and delays batches.

    Its replay answers from a buffer of ``kept`` batches, and later than it was asked: ``ask``
    takes the answer, ``answer`` hands it over. ``whole`` False: it is cut off at random.
    """

    GRACE = 5

    def __init__(self, seed: int, *, replay: bool, kept: int = 10**6, whole: bool = True) -> None:
        self.random = random.Random(seed)
        self.sequencer = Sequencer("pod-a", 0, replay=replay, grace=self.GRACE)
        self.kept = kept
        self.whole = whole
        self.life = 0
        self.published = 0
        self.pipe: list[Batch | Undecodable] = []
        self.answered: tuple[list[Batch | Undecodable], bool] | None = None
        self.out: list[Record] = []
        self.now = 0.0

    def send(self, how: str = "send") -> None:
        batch = message(self.published, self.life)
        self.published += 1
        if how != "drop":
            self.pipe += [batch] * (2 if how == "twice" else 1)

    def deliver(self, how: str = "deliver") -> None:
        """Hand over what is in the pipe; ``swap``: near neighbours change places."""
        pipe, self.pipe = self.pipe, []
        if how == "swap":
            for at in range(len(pipe) - 1):
                # The first batch of a life is what shows the life without a replay.
                if self.random.random() < 0.4 and pipe[at].wire.seq > 0:
                    pipe[at], pipe[at + 1] = pipe[at + 1], pipe[at]
        for batch in pipe:
            self.now += 1
            self.out += self.sequencer.feed(batch, self.now)
            self.out += self.sequencer.tick(self.now)

    def restart(self, how: str = "restart") -> None:
        """A new life; ``lose``: what was under way is lost with the connection."""
        if how == "lose":
            self.pipe = []
        self.life += 1
        self.published = 0
        self.answered = None  # the connection it would come over is gone
        self.sequencer.connected(again=True)

    def ask(self) -> None:
        if self.sequencer.want is None or self.answered is not None:
            return
        if any(batch.events.ts < 1000.0 * (self.life + 1) for batch in self.pipe):
            self.deliver()  # what an earlier connection brought is read before
        self.sequencer.asked()
        start = max(self.sequencer.want, self.published - self.kept)
        batches = messages(range(start, self.published), self.life)
        if not self.whole and self.random.random() < 0.5:
            batches = [each for each in batches if self.random.random() < 0.7]
            self.answered = (batches[: self.random.randint(0, len(batches))], False)
        else:
            self.answered = (batches, True)

    def answer(self) -> None:
        if self.answered is not None:
            (batches, whole), self.answered = self.answered, None
            self.out += self.sequencer.replayed(batches, whole, self.now)

    def settle(self) -> None:
        """Everything under way arrives, and time passes, until nothing is waited for."""
        self.deliver()
        for _ in range(100):
            self.ask()
            self.answer()
            self.now += 100
            self.out += self.sequencer.tick(self.now)
            if self.sequencer.settled:
                return
        raise AssertionError("the sequencer does not come to rest")

    def run(self, steps: Sequence[str]) -> None:
        for step in steps:
            if step in ("send", "drop", "twice"):
                self.send(step)
            elif step in ("restart", "lose"):
                self.restart(step)
            elif step == "ask":
                self.ask()
            elif step == "answer":
                self.answer()
            else:
                self.deliver(step)
        self.settle()
        self.send()  # the last one always arrives: it shows what was lost before
        self.settle()

    def lives(self) -> list[list[object]]:
        """What came out, a list a life."""
        found: list[list[object]] = [[]]
        for each in shown(self.out):
            if each == "restart":
                found.append([])
            else:
                found[-1].append(each)
        return found
