"""A run of blocks as bytes: when they were stored, their LoRA, the identity of each.

The blocks of an event are stored together, so they share one of these: 24 bytes a block for events
of four blocks, where an object for each would take 100. A `Packed` is, in order: the engine time
(float64), the number of blocks and the width of an identity (one byte each; `_LORA` is added to
the width if a LoRA follows), a *check byte* per block, the identities, the LoRA's name in UTF-8.

A block hash finds its block by the check byte, its own last eight bits. They differ from block to
block: blocks for which they do not are packed apart.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TypeAlias

from kvctl.events import BlockHash
from kvctl.index.content import ANCHORED_LENGTH, Content

Packed: TypeAlias = bytes

_HEADER = struct.Struct("<dBB")
_FIRST_CHECK = _HEADER.size
_COUNT, _WIDTH = 8, 9
_LORA = 0x80
_MOST = 255


def pack_together(
    names: Sequence[BlockHash], contents: Sequence[Content], stored: float
) -> Packed | None:
    """Blocks of the base model that follow each other, stored at engine time ``stored``, in one;
    None where they must be packed apart (`pack`)."""
    # Nearly every event of an index's work comes by here.
    checks = _checks(names)
    count = len(checks)
    if len(set(checks)) == count <= _MOST:
        header = _HEADER.pack(stored, count, ANCHORED_LENGTH)
        packed = b"".join([header, checks, *contents])
        if len(packed) == _FIRST_CHECK + count * (1 + ANCHORED_LENGTH):
            return packed
    return None


def pack(
    names: list[BlockHash], contents: Sequence[Content], stored: float, lora: str | None
) -> list[tuple[list[BlockHash], Packed]]:
    """Blocks that follow each other, stored at engine time ``stored``, in as few as can be."""
    checks = _checks(names)
    return [
        (names[at:end], _pack(checks[at:end], b"".join(contents[at:end]), stored, lora))
        for at, end in _runs(checks, contents)
    ]


def stored_at(packed: Packed) -> float:
    """The engine time at which the blocks were stored."""
    return float(_HEADER.unpack_from(packed)[0])


def content_of(packed: Packed, name: BlockHash) -> Content:
    """The identity of a block that is among these."""
    place = packed.index(_check(name), _FIRST_CHECK) - _FIRST_CHECK
    width = packed[_WIDTH] & ~_LORA
    at = _FIRST_CHECK + packed[_COUNT] + place * width
    return packed[at : at + width]


def all_anchored(packed: Packed) -> bool:
    """Whether the blocks' chains are known back to the root: of all of them or of none."""
    return packed[_WIDTH] & ~_LORA == ANCHORED_LENGTH


def lora_under(packed: Packed) -> str | None:
    """The LoRA that the blocks were computed under, None for the base model."""
    count, width = packed[_COUNT], packed[_WIDTH]
    if width < _LORA:
        return None
    return packed[_FIRST_CHECK + count * (1 + width - _LORA) :].decode()


def count_of(packed: Packed) -> int:
    """How many blocks there are."""
    return packed[_COUNT]


def contents_of(packed: Packed) -> list[Content]:
    """The identities of all the blocks."""
    count = packed[_COUNT]
    return list(_identities(count, packed[_WIDTH] & ~_LORA)(packed, _FIRST_CHECK + count))


@lru_cache(2 * _MOST)
def _identities(count: int, width: int) -> Callable[[bytes, int], tuple[Content, ...]]:
    """What takes so many identities of that width out of bytes, from a place on."""
    return struct.Struct(f"{width}s" * count).unpack_from


def first_of(packed: Packed) -> Content:
    """The identity of the first block."""
    first = _FIRST_CHECK + packed[_COUNT]
    return packed[first : first + (packed[_WIDTH] & ~_LORA)]


def shortened(packed: Packed, count: int) -> Packed:
    """Only the first ``count`` blocks, of one or more."""
    width = packed[_WIDTH] & ~_LORA
    first = _FIRST_CHECK + packed[_COUNT]
    checks = packed[_FIRST_CHECK : _FIRST_CHECK + count]
    joined = packed[first : first + count * width]
    return _pack(checks, joined, stored_at(packed), lora_under(packed))


def shared_with(packed: Packed, contents: Sequence[Content], at: int) -> int:
    """How many blocks, from the first on, are those of ``contents`` from ``at`` on."""
    # An identity stands for all the blocks before it: where the last is the same, all are.
    count, width = packed[_COUNT], packed[_WIDTH]
    if width < _LORA and at + count <= len(contents) and packed.endswith(contents[at + count - 1]):
        return count
    width &= ~_LORA
    first = _FIRST_CHECK + count
    count = min(count, len(contents) - at)
    while count and not packed.startswith(contents[at + count - 1], first + (count - 1) * width):
        count -= 1
    return count


def _checks(names: Sequence[BlockHash]) -> bytes:
    """The check bytes of all."""
    try:
        if isinstance(names[0], int):
            return _words(len(names))(*names)[::8]
        return bytes([name[-1] for name in names])  # type: ignore[index]
    except (IndexError, TypeError, struct.error):  # negative, empty, or of both kinds
        return bytes(map(_check, names))


@lru_cache(_MOST)
def _words(count: int) -> Callable[..., bytes]:
    """What makes so many 64-bit numbers bytes, the last eight bits of each first."""
    return struct.Struct(f"<{count}Q").pack


def _check(name: BlockHash) -> int:
    if isinstance(name, int):
        return name & 0xFF
    return name[-1] if name else 0


def _pack(checks: bytes, joined: bytes, stored: float, lora: str | None) -> Packed:
    count = len(checks)
    width = len(joined) // count if count else ANCHORED_LENGTH
    if lora is None:
        return _HEADER.pack(stored, count, width) + checks + joined
    return _HEADER.pack(stored, count, width | _LORA) + checks + joined + lora.encode()


def _runs(checks: bytes, contents: Sequence[Content]) -> Iterator[tuple[int, int]]:
    """From and to of the blocks that can be packed together."""
    at = 0
    for end in range(1, len(checks) + 1):
        if (
            end == len(checks)
            or end - at == _MOST
            or checks[end] in checks[at:end]
            or len(contents[end]) != len(contents[at])
        ):
            yield at, end
            at = end
