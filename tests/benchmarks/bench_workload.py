"""A fleet's KV events, made up: conversations over shared system prompts, the same every time."""

from __future__ import annotations

import hashlib
import random
from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from kvctl.events import (
    FORMS,
    Batch,
    BlockHash,
    BlockRemoved,
    BlockStored,
    Event,
    EventBatch,
    WireBatch,
    encode_batch,
    wire_form,
)

BLOCK_SIZE = 16
PODS = tuple(f"pod-{letter}" for letter in "abcdefgh")
MODEL = "tiny"

FORMS_BY_NAME = {"array": wire_form("0.23.0"), "map": FORMS[-1]}
HASHES = ("int", "bytes")

_VOCABULARY = 128_000
_POOL = 1 << 20  # tokens that blocks are cut from, anywhere: faster than to draw each
_SYSTEM_PROMPTS = 64
_SYSTEM_BLOCKS = 16
_TURN_BLOCKS = (2, 6)  # a question with its answer, from and to
_MAX_BLOCKS = 256  # of a conversation
_MOVES = 0.005  # share of turns that another pod gets
_REMOVED = 0.1  # of the stored blocks
_STORES_A_BATCH = 4


@dataclass(eq=False)
class Conversation:
    """Its blocks so far, and where its next turn goes by default."""

    home: int
    tokens: list[array[int]] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)

    def grow(self, tokens: array[int]) -> None:
        parent = self.digests[-1] if self.digests else b""
        self.tokens.append(tokens)
        self.digests.append(hashlib.sha256(parent + tokens.tobytes()).digest())

    def prompt(self) -> tuple[int, ...]:
        return tuple(token for block in self.tokens for token in block)


@dataclass
class Workload:
    """``events`` has the batches in order, each with the number of its pod.

    ``prompts`` are conversations as they were at the end, to match.
    """

    stored: int
    removed: int
    events: list[tuple[int, EventBatch]]
    prompts: list[tuple[int, ...]]

    def wire(self, form: str) -> list[WireBatch]:
        """The messages that engines of a form publish."""
        seqs = [0] * len(PODS)
        out = []
        for pod, batch in self.events:
            payload = encode_batch(batch, FORMS_BY_NAME[form])
            name = PODS[pod]
            topic = f"kv@{name}@{MODEL}".encode()
            out.append(WireBatch(0, name, 0, topic, seqs[pod], payload))
            seqs[pod] += 1
        return out


def make_workload(blocks: int, hashes: str = "int") -> Workload:
    """At least ``blocks`` stored blocks, and their removes."""
    return _Maker(hashes).make(blocks)


class _Maker:
    def __init__(self, hashes: str) -> None:
        self._random = random.Random(2287)
        self._hashes = hashes
        self._pool = array("I", self._random.choices(range(_VOCABULARY), k=_POOL))
        self._systems = [self._system() for _ in range(_SYSTEM_PROMPTS)]
        self._held: list[set[bytes]] = [set() for _ in PODS]
        self._idle: list[deque[bytes]] = [deque() for _ in PODS]
        self._pending: list[list[Event]] = [[] for _ in PODS]
        self._ts = 1_700_000_000.0
        self._debt = [0.0] * len(PODS)

    def make(self, blocks: int) -> Workload:
        rng = self._random
        events: list[tuple[int, EventBatch]] = []
        stored = removed = 0
        active = [self._begin() for _ in range(256)]
        while stored < blocks:
            at = rng.randrange(len(active))
            talk = active[at]
            for _ in range(rng.randint(*_TURN_BLOCKS)):
                talk.grow(self._block())
            pod = rng.randrange(len(PODS)) if rng.random() < _MOVES else talk.home
            count, gone = self._serve(pod, talk)
            stored += count
            removed += gone
            if len(self._pending[pod]) >= _STORES_A_BATCH:
                events.append((pod, self._flush(pod)))
            if len(talk.digests) > _MAX_BLOCKS:
                for idle in self._idle:
                    idle.extend(reversed(talk.digests[_SYSTEM_BLOCKS:]))
                active[at] = self._begin()
        for pod in range(len(PODS)):
            if self._pending[pod]:
                events.append((pod, self._flush(pod)))
        return Workload(stored, removed, events, [talk.prompt() for talk in active])

    def _serve(self, pod: int, talk: Conversation) -> tuple[int, int]:
        """The pod computes what it lacks of the conversation; returns blocks stored, removed."""
        held, digests = self._held[pod], talk.digests
        known = 0
        while known < len(digests) and digests[known] in held:
            known += 1
        new = digests[known:]
        held.update(new)
        gone = self._evict(pod, len(new) * _REMOVED)
        # An engine publishes one event for each block that it evicts.
        self._pending[pod] += [BlockRemoved([self._name(each)], "GPU", 0) for each in gone]
        if new:
            parent = self._name(digests[known - 1]) if known else None
            tokens = [token for block in talk.tokens[known:] for token in block]
            self._pending[pod].append(
                BlockStored(
                    [self._name(each) for each in new],
                    parent,
                    tokens,
                    BLOCK_SIZE,
                    medium="GPU",
                    group_idx=0,
                    kv_cache_spec_kind="full_attention",
                )
            )
        return len(new), len(gone)

    def _evict(self, pod: int, more: float) -> list[bytes]:
        """Blocks of conversations that are over, the oldest conversation first, from its end."""
        held, idle = self._held[pod], self._idle[pod]
        self._debt[pod] += more
        gone = []
        while self._debt[pod] >= 1 and idle:
            digest = idle.popleft()
            if digest in held:
                held.discard(digest)
                gone.append(digest)
                self._debt[pod] -= 1
        return gone

    def _flush(self, pod: int) -> EventBatch:
        self._ts += 0.01
        events, self._pending[pod] = self._pending[pod], []
        return EventBatch(self._ts, events, 0)

    def _name(self, digest: bytes) -> BlockHash:
        return digest if self._hashes == "bytes" else int.from_bytes(digest[-8:], "big")

    def _begin(self) -> Conversation:
        system = self._random.choice(self._systems)
        return Conversation(
            self._random.randrange(len(PODS)), list(system.tokens), list(system.digests)
        )

    def _system(self) -> Conversation:
        talk = Conversation(0)
        for _ in range(_SYSTEM_BLOCKS):
            talk.grow(self._block())
        return talk

    def _block(self) -> array[int]:
        at = self._random.randrange(_POOL - BLOCK_SIZE)
        return self._pool[at : at + BLOCK_SIZE]
