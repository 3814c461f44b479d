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
WIRE_FORMS = {"array": wire_form("0.23.0"), "map": FORMS[-1]}
HASHES = ("int", "bytes")

_VOCABULARY = 128_000
_POOL = 1 << 20  # tokens that blocks are cut from, anywhere: faster than to draw each
_SYSTEM_PROMPTS = 64
_SYSTEM_BLOCKS = 16
_TURN_BLOCKS = (2, 6)  # a question with its answer, from and to
_TALK_BLOCKS = (24, 256)  # of a conversation that is over, from and to
_ACTIVE = 256  # conversations at a time
_MOVES = 0.005  # share of turns that another pod gets than the conversation's own
_REMOVED = 0.1  # of the stored blocks
_STORES_A_BATCH = 4


@dataclass(eq=False)
class Conversation:
    """Its blocks so far, at how many it is over, and the pod it is routed to by default."""

    home: int
    until: int = 0
    tokens: list[array[int]] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)

    def grow(self, tokens: array[int]) -> None:
        parent = self.digests[-1] if self.digests else b""
        self.tokens.append(tokens)
        self.digests.append(hashlib.sha256(parent + tokens.tobytes()).digest())


@dataclass
class Workload:
    """What engines publish: ``wires`` in order, each pod with its own seqs.

    ``stored`` and ``removed`` count blocks. ``prompts`` are the conversations that go on at the
    end, as token ids.
    """

    stored: int
    removed: int
    wires: list[WireBatch]
    prompts: list[tuple[int, ...]]

    @property
    def entries(self) -> int:
        return self.stored - self.removed

    @property
    def prompt_blocks(self) -> int:
        return sum(len(prompt) // BLOCK_SIZE for prompt in self.prompts)


def make_workload(blocks: int, *, form: str = "array", hashes: str = "int") -> Workload:
    """At least ``blocks`` stored blocks and a tenth as many removes.

    ``form`` is one of `WIRE_FORMS`, ``hashes`` one of `HASHES`.
    """
    fleet = _Fleet(hashes)
    seqs = [0] * len(PODS)
    wires = []
    for pod, batch in fleet.serve(blocks):
        name = PODS[pod]
        topic = f"kv@{name}@{MODEL}".encode()
        payload = encode_batch(batch, WIRE_FORMS[form])
        wires.append(WireBatch(0, name, 0, topic, seqs[pod], payload))
        seqs[pod] += 1
    return Workload(fleet.stored, fleet.removed, wires, fleet.prompts())


class _Fleet:
    def __init__(self, hashes: str) -> None:
        self.stored = self.removed = 0
        self._random = random.Random(2287)
        self._hashes = hashes
        self._pool = array("I", self._random.choices(range(_VOCABULARY), k=_POOL))
        self._systems = [self._system() for _ in range(_SYSTEM_PROMPTS)]
        self._talks = [self._begin() for _ in range(_ACTIVE)]
        self._held: list[set[bytes]] = [set() for _ in PODS]
        self._idle: list[deque[bytes]] = [deque() for _ in PODS]
        self._debt = [0.0] * len(PODS)
        self._ts = 1_700_000_000.0

    def serve(self, blocks: int) -> Iterator[tuple[int, EventBatch]]:
        """Turn by turn, until so many blocks are stored; yields (pod, batch)."""
        rng = self._random
        pending: list[list[Event]] = [[] for _ in PODS]
        while self.stored < blocks:
            at = rng.randrange(_ACTIVE)
            talk = self._talks[at]
            for _ in range(rng.randint(*_TURN_BLOCKS)):
                talk.grow(self._block())
            pod = rng.randrange(len(PODS)) if rng.random() < _MOVES else talk.home
            pending[pod] += self._compute(pod, talk)
            if len(pending[pod]) >= _STORES_A_BATCH:
                yield pod, self._batch(pending[pod])
                pending[pod] = []
            if len(talk.digests) >= talk.until:
                for idle in self._idle:
                    idle.extend(reversed(talk.digests[_SYSTEM_BLOCKS:]))
                self._talks[at] = self._begin()
        for pod, events in enumerate(pending):
            if events:
                yield pod, self._batch(events)

    def prompts(self) -> list[tuple[int, ...]]:
        return [tuple(token for block in talk.tokens for token in block) for talk in self._talks]

    def _compute(self, pod: int, talk: Conversation) -> list[Event]:
        """The pod computes what it lacks of the conversation, for room it evicts the idle."""
        held, digests = self._held[pod], talk.digests
        known = len(digests)
        while known and digests[known - 1] not in held:
            known -= 1
        new = digests[known:]
        held.update(new)
        self.stored += len(new)
        # An engine publishes an event for each block that it evicts, ahead of the stores.
        events: list[Event] = [
            BlockRemoved([self._name(each)], "GPU", 0)
            for each in self._evict(pod, len(new) * _REMOVED)
        ]
        self.removed += len(events)
        if new:
            events.append(
                BlockStored(
                    [self._name(each) for each in new],
                    self._name(digests[known - 1]) if known else None,
                    [token for block in talk.tokens[known:] for token in block],
                    BLOCK_SIZE,
                    medium="GPU",
                    extra_keys=[None] * len(new),  # as vLLM sends it where there are none
                    group_idx=0,
                    kv_cache_spec_kind="full_attention",
                )
            )
        return events

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

    def _batch(self, events: list[Event]) -> EventBatch:
        self._ts += 0.01
        return EventBatch(self._ts, events, 0)

    def _name(self, digest: bytes) -> BlockHash:
        return digest if self._hashes == "bytes" else int.from_bytes(digest[-8:], "big")

    def _begin(self) -> Conversation:
        system = self._random.choice(self._systems)
        home, until = self._random.randrange(len(PODS)), self._random.randint(*_TALK_BLOCKS)
        return Conversation(home, until, list(system.tokens), list(system.digests))

    def _system(self) -> Conversation:
        talk = Conversation(0)
        for _ in range(_SYSTEM_BLOCKS):
            talk.grow(self._block())
        return talk

    def _block(self) -> array[int]:
        at = self._random.randrange(_POOL - BLOCK_SIZE)
        return self._pool[at : at + BLOCK_SIZE]
