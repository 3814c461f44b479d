"""The block pool of one simulated engine: which blocks hold which prefix, and what goes first.

Behaves as vLLM 0.32 ``v1/core/block_pool``: blocks of finished requests are reused oldest first
(those without a full prefix before all others), the last block of a prompt that hits whole is
computed anew, and every change queues its event.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from kvctl.events import AllBlocksCleared, BlockHash, BlockRemoved, BlockStored, Event
from kvctl.events.enginehash import ROOT_DIGEST, block_digest

_GPU = "GPU"


@dataclass
class Block:
    """One physical block; ``digest`` names the prefix it holds, None while it holds none whole."""

    number: int
    digest: bytes | None = None
    references: int = 0


@dataclass(eq=False)
class Tokens:
    """A request's tokens and the blocks that hold them."""

    tokens: list[int]
    lora: str | None = None
    salt: str | None = None
    blocks: list[Block] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    stored: int = 0
    """Leading blocks that are in the cache under their digest."""


class PoolFullError(Exception):
    """There is no block left that is not in use."""


class BlockPool:
    """Blocks of one engine. ``events`` queues what happened, until somebody takes it."""

    def __init__(self, blocks: int, block_size: int, *, int_hashes: bool = True) -> None:
        self.block_size = block_size
        self.events: list[Event] = []
        self._int_hashes = int_hashes
        # The null block, number 0, is never given out.
        self._blocks = [Block(number) for number in range(1, blocks)]
        self._free: OrderedDict[int, Block] = OrderedDict((b.number, b) for b in self._blocks)
        self._cached: dict[bytes, dict[int, Block]] = {}

    @property
    def in_use(self) -> int:
        """Blocks that requests hold."""
        return len(self._blocks) - len(self._free)

    def start(self, sequence: Tokens) -> int:
        """Give a new request its blocks: cached ones as far as they go; returns tokens hit.

        At least one token must be computed: a prompt that is cached whole computes its last block
        anew. Raises `PoolFullError`, changing nothing.
        """
        self._extend_digests(sequence)
        hits: list[Block] = []
        for digest in sequence.digests[: (len(sequence.tokens) - 1) // self.block_size]:
            copies = self._cached.get(digest)
            if not copies:
                break
            hits.append(next(iter(copies.values())))
        needed = -(-len(sequence.tokens) // self.block_size) - len(hits)
        if needed > len(self._free) - sum(not block.references for block in hits):
            raise PoolFullError
        for block in hits:
            self._free.pop(block.number, None)
            block.references += 1
        sequence.blocks = [*hits, *self._allocate(needed)]
        sequence.stored = len(hits)
        self._store(sequence)
        return len(hits) * self.block_size

    def append(self, sequence: Tokens, token: int) -> None:
        """One decode step: the last token enters the cache, in a new block if the last is full."""
        sequence.tokens.append(token)
        if len(sequence.blocks) * self.block_size < len(sequence.tokens):
            if not self._free:
                raise PoolFullError
            sequence.blocks += self._allocate(1)
        self._extend_digests(sequence)
        self._store(sequence)

    def finish(self, sequence: Tokens) -> None:
        """Give the request's blocks back, its last first: that is the order they are reused in."""
        for block in reversed(sequence.blocks):
            block.references -= 1
            if block.references == 0:
                self._free[block.number] = block
                # What holds no whole prefix is of no use to anybody: reused before all others.
                self._free.move_to_end(block.number, last=block.digest is not None)
        sequence.blocks = []

    def reset(self) -> bool:
        """Forget every prefix; refused while requests hold blocks."""
        if self.in_use:
            return False
        for block in self._blocks:
            block.digest = None
        self._cached.clear()
        self.events.append(AllBlocksCleared())
        return True

    def contents(self) -> list[tuple[BlockHash, int]]:
        """Every cached block's hash, with the number of its copies."""
        return [(self._name(digest), len(copies)) for digest, copies in self._cached.items()]

    def _extend_digests(self, sequence: Tokens) -> None:
        size = self.block_size
        while (len(sequence.digests) + 1) * size <= len(sequence.tokens):
            number = len(sequence.digests)
            parent = sequence.digests[-1] if number else ROOT_DIGEST
            tokens = sequence.tokens[number * size : (number + 1) * size]
            extra = _extra_keys(sequence, number) or []
            sequence.digests.append(block_digest(parent, tokens, extra, sequence.lora))

    def _allocate(self, count: int) -> list[Block]:
        taken = []
        for _ in range(count):
            _number, block = self._free.popitem(last=False)
            if block.digest is not None:
                copies = self._cached[block.digest]
                del copies[block.number]
                if not copies:
                    del self._cached[block.digest]
                self.events.append(
                    BlockRemoved([self._name(block.digest)], medium=_GPU, group_idx=0)
                )
                block.digest = None
            block.references = 1
            taken.append(block)
        return taken

    def _store(self, sequence: Tokens) -> None:
        """Put the blocks that became whole under their names."""
        first, size = sequence.stored, self.block_size
        new = sequence.digests[first:]
        if not new:
            return
        for number, digest in enumerate(new, first):
            block = sequence.blocks[number]
            block.digest = digest
            self._cached.setdefault(digest, {})[block.number] = block
        sequence.stored = len(sequence.digests)
        self.events.append(
            BlockStored(
                [self._name(digest) for digest in new],
                self._name(sequence.digests[first - 1]) if first else None,
                sequence.tokens[first * size : (first + len(new)) * size],
                size,
                medium=_GPU,
                lora_id=None if sequence.lora is None else 1,
                lora_name=sequence.lora,
                extra_keys=[_extra_keys(sequence, n) for n in range(first, first + len(new))],
                group_idx=0,
                kv_cache_spec_kind="full_attention",
            )
        )

    def _name(self, digest: bytes) -> BlockHash:
        return int.from_bytes(digest[-8:], "big") if self._int_hashes else digest


def _extra_keys(sequence: Tokens, number: int) -> list[Any] | None:
    """What a block's hash takes in besides its tokens, as the event tells it."""
    keys = [] if sequence.lora is None else [sequence.lora]
    if sequence.salt is not None and number == 0:
        keys.append(sequence.salt)
    return keys or None
