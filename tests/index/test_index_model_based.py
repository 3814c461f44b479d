"""The indexes in memory against a plain model: after any sequence of events they agree."""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
from builders import batch, cleared, removed, stored
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kvctl.events import Record, Restart
from kvctl.index import MemoryIndex, NameIndex, Prompt

SIZE = 2
PODS = st.sampled_from(["pod-a", "pod-b"])
RANKS = st.sampled_from([0, 1])
MEDIA = st.sampled_from([None, "GPU", "CPU"])
LORAS = st.sampled_from([None, "ad1"])
# Few tokens, short prompts: prefixes meet often.
PROMPTS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=4)

# The model knows a block by its whole prefix: (lora, ((0, 1), (1, 1), ...)).
Block = tuple[str | None, tuple[tuple[int, int], ...]]


def engine_hash(pod: str, block: Block) -> int:
    """Each pod has its own name for a block."""
    return hash((pod, block)) & (2**64 - 1)


class IndexAgainstModel(RuleBasedStateMachine):
    """`model` counts the copies of each (pod, rank, medium, block)."""

    def __init__(self) -> None:
        super().__init__()
        self.index = MemoryIndex()
        self.names = NameIndex()
        self.model: Counter[tuple[str, int, str, Block]] = Counter()
        self.ts = 0.0
        self.last: dict[tuple[str, int, str, Block], float] = {}

    def apply(self, record: Record) -> None:
        self.index.apply(record)
        self.names.apply(record)

    def tick(self) -> float:
        self.ts += 1.0
        return self.ts

    @rule(pod=PODS, rank=RANKS, medium=MEDIA, lora=LORAS, prompt=PROMPTS, data=st.data())
    def store(self, pod, rank, medium, lora, prompt, data) -> None:
        """The blocks of a prompt behind some that any medium of the rank holds already."""
        blocks = [(lora, tuple(prompt[: n + 1])) for n in range(len(prompt))]
        held = 0
        while held < len(blocks) - 1 and any(
            self.model[pod, rank, where, blocks[held]] for where in ("GPU", "CPU")
        ):
            held += 1
        start = data.draw(st.integers(0, held))
        event = stored(
            [engine_hash(pod, block) for block in blocks[start:]],
            [token for pair in prompt[start:] for token in pair],
            parent=engine_hash(pod, blocks[start - 1]) if start else None,
            size=SIZE,
            medium=medium,
            lora_name=lora,
        )
        ts = self.tick()
        self.apply(batch(event, pod=pod, rank=rank, ts=ts))
        for block in blocks[start:]:
            key = (pod, rank, medium or "GPU", block)
            self.model[key] += 1
            self.last[key] = ts

    @rule(data=st.data())
    def remove(self, data) -> None:
        if +self.model:
            key = data.draw(st.sampled_from(sorted(+self.model, key=repr)))
            pod, rank, medium, block = key
            self.apply(batch(removed(engine_hash(pod, block), medium=medium), pod=pod, rank=rank))
            self.model[key] -= 1

    @rule(pod=PODS, rank=RANKS, medium=MEDIA, prompt=PROMPTS)
    def remove_what_may_not_be_there(self, pod, rank, medium, prompt) -> None:
        block = (None, tuple(prompt))
        self.apply(batch(removed(engine_hash(pod, block), medium=medium), pod=pod, rank=rank))
        key = (pod, rank, medium or "GPU", block)
        self.model[key] = max(0, self.model[key] - 1)

    @rule(pod=PODS, rank=RANKS)
    def clear(self, pod, rank) -> None:
        self.apply(batch(cleared(), pod=pod, rank=rank))
        self.forget(pod, rank)

    @rule(pod=PODS, rank=RANKS)
    def restart(self, pod, rank) -> None:
        self.apply(Restart(0, pod, rank, None, "test"))
        self.forget(pod, rank)

    @rule(pod=PODS)
    def purge(self, pod) -> None:
        held = sum(count > 0 for key, count in self.model.items() if key[0] == pod)
        assert self.index.purge(pod) == held
        assert self.names.purge(pod) == held
        for rank in (0, 1):
            self.forget(pod, rank)

    @rule(pod=PODS, rank=RANKS, age=st.integers(0, 10))
    def purge_the_old(self, pod, rank, age) -> None:
        cutoff = self.ts - age
        purged = self.index.purge(pod, rank, before=cutoff)
        assert self.names.purge(pod, rank, before=cutoff) == purged
        for key in [key for key in +self.model if key[:2] == (pod, rank)]:
            if self.last[key] < cutoff:
                self.model[key] = 0

    def forget(self, pod: str, rank: int) -> None:
        for key in list(self.model):
            if key[:2] == (pod, rank):
                del self.model[key]

    @invariant()
    def entries_agree(self) -> None:
        held = Counter(
            {(e.pod, e.rank, e.medium, e.block_hash): e.references for e in self.index.entries()}
        )
        expected = Counter(
            {
                (pod, rank, medium, engine_hash(pod, block)): count
                for (pod, rank, medium, block), count in self.model.items()
                if count > 0
            }
        )
        assert held == expected
        summary = self.index.summary()
        assert summary.entries == len(expected)
        assert all(stream.unanchored == 0 for stream in summary.streams)
        assert summary.blocks == len({key[3] for key in +self.model})

    @invariant()
    def names_agree(self) -> None:
        for pod in ("pod-a", "pod-b"):
            held = [key for key in +self.model if key[0] == pod]
            for rank in (0, 1):
                count = sum(key[1] == rank for key in held)
                assert self.names.entries_in(pod, rank) == count
            times = [self.last[key] for key in held]
            for age in (0, 3):
                cutoff = self.ts - age
                assert self.names.stored_before(pod, cutoff) == sum(t < cutoff for t in times)
            newest = self.names.newest(pod)
            assert (newest is None) == (not held)
            assert newest is None or newest >= max(times)

    @invariant()
    def matches_agree(self) -> None:
        for lora in (None, "ad1"):
            for prompt in ([(0, 0), (0, 1), (1, 1)], [(1, 0), (1, 0)], [(1, 1)]):
                found = self.index.match(
                    Prompt(tuple(token for pair in prompt for token in pair), None, lora)
                )
                for pod, match in found.items():
                    assert match.blocks == max(
                        self.run(pod, rank, lora, prompt, ("GPU",)) for rank in (0, 1)
                    )

    def run(self, pod, rank, lora, prompt, media) -> int:
        for length in range(len(prompt)):
            block = (lora, tuple(prompt[: length + 1]))
            if not any(self.model[pod, rank, medium, block] > 0 for medium in media):
                return length
        return len(prompt)


IndexAgainstModel.TestCase.settings = settings(max_examples=80, stateful_step_count=40)
TestIndexAgainstModel = IndexAgainstModel.TestCase
