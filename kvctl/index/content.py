"""Content identity: which blocks are the same block, whatever their engines call them.

A block is (model, LoRA, extra keys, parent block, tokens). Its identity is a chained digest of
these, 96 bits of xxh3's 128: stable across pods, processes and machines, unlike an engine's block
hash. That two of a thousand million blocks have the same by accident is one chance in 10^11; xxh3
is not cryptographic, but collisions made on purpose would confuse kvctl's picture and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Any, TypeAlias

import msgspec
from xxhash import xxh3_128_digest

from kvctl.events import BlockHash

Content: TypeAlias = bytes
"""12 bytes; 13 where the chain does not reach back to a root (*unanchored*)."""

ANCHORED_LENGTH = 12
_CUT = slice(ANCHORED_LENGTH)
_UNANCHORED_MARK = b"?"
_pack_value = msgspec.msgpack.Encoder().encode


def root(model: str, lora: str | None) -> Content:
    """Identity of the empty prefix of a model under a LoRA (None: the base model)."""
    return _digest(_pack_value(("root", model, lora)))


def unknown_parent(model: str, lora: str | None, parent: BlockHash) -> Content:
    """Identity of a parent that was never seen: its descendants never match from the root."""
    return _digest(_pack_value(("unknown", model, lora, parent))) + _UNANCHORED_MARK


def untold(model: str, lora: str | None, block_hash: BlockHash) -> Content:
    """Identity of a block whose tokens were never told, only its engine's name for it."""
    return _digest(_pack_value(("untold", model, lora, block_hash))) + _UNANCHORED_MARK


def _digest(data: bytes, seed: int = 0) -> Content:
    return xxh3_128_digest(data, seed)[_CUT]


def is_anchored(content: Content) -> bool:
    """Whether the block's chain is known back to the root."""
    return len(content) == ANCHORED_LENGTH


def pack_blocks(token_ids: Sequence[int], block_size: int) -> list[bytes]:
    """The tokens of each whole block as bytes: four a token, as every router counts them.

    A block with a token outside 32 bits gets a text form instead, of a length no other block
    has (2 modulo 4), so that the two kinds cannot be taken for each other.
    """
    whole = len(token_ids) // block_size * block_size
    try:
        packed = _packer(whole)(*token_ids[:whole])
    except struct.error:
        return [
            _pack_odd_block(token_ids[at : at + block_size]) for at in range(0, whole, block_size)
        ]
    width = block_size * 4
    return [packed[at : at + width] for at in range(0, len(packed), width)]


def _pack_odd_block(tokens: Sequence[int]) -> bytes:
    try:
        return _packer(len(tokens))(*tokens)
    except struct.error:
        text = repr(list(tokens)).encode()
        return text + b" " * ((2 - len(text)) % 4)


def chain(parent: Content, token_ids: Sequence[int], block_size: int) -> list[Content]:
    """Identities of the whole blocks of a run of tokens, the first block behind ``parent``.

    Blocks with extra keys are `chain_with_extras`'s.
    """
    left_over = len(token_ids) % block_size
    if left_over:
        token_ids = token_ids[:-left_over]
    try:
        packed = _packer(len(token_ids))(*token_ids)
    except struct.error:
        return chain_with_extras(parent, pack_blocks(token_ids, block_size), ())
    blocks = _cutter(block_size * 4)(packed)
    # Most of what an index takes in comes by here: plain loops, nothing twice.
    contents, cut = [], _CUT
    if len(parent) == ANCHORED_LENGTH:
        for (block,) in blocks:
            parent = xxh3_128_digest(parent + block)[cut]
            contents.append(parent)
    else:
        for (block,) in blocks:
            parent = xxh3_128_digest(parent + block)[cut] + _UNANCHORED_MARK
            contents.append(parent)
    return contents


@lru_cache(1024)
def _packer(count: int) -> Callable[..., bytes]:
    """What makes so many tokens bytes; `struct.error` for one outside 32 bits."""
    return struct.Struct(f"{count}I").pack


@lru_cache(64)
def _cutter(width: int) -> Callable[[bytes], Iterator[tuple[bytes]]]:
    """What cuts bytes into pieces of ``width``, each in a tuple."""
    return struct.Struct(f"{width}s").iter_unpack


def chain_with_extras(
    parent: Content, blocks: Sequence[bytes], extras: Sequence[bytes]
) -> list[Content]:
    """Identities of consecutive blocks (`pack_blocks`), the first behind ``parent``.

    ``extras`` are the extra keys of each (`pack_extra_keys`; empty for none), for as many as have
    any.
    """
    contents = []
    for block, extra in zip_longest(blocks, extras, fillvalue=b""):
        if extra:
            # The length at the end keeps (tokens, extra) apart from any other split of the bytes.
            digest = _digest(parent + block + extra + len(extra).to_bytes(4, "little"), seed=1)
        else:
            digest = _digest(parent + block)
        parent = digest if is_anchored(parent) else digest + _UNANCHORED_MARK
        contents.append(parent)
    return contents


def pack_extra_keys(keys: Sequence[Any] | None, lora: str | None) -> bytes:
    """One block's extra keys as bytes, empty for none.

    The LoRA's own name, which vLLM puts first as a bare string (0.17+), is left out: the root
    holds it already, and older versions do not send it.
    """
    if not keys:
        return b""
    if lora is not None and keys[0] == lora:
        keys = keys[1:]
    return _pack_value(list(keys)) if keys else b""
