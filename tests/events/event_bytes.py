"""msgpack byte by byte: what no tidy encoder writes (odd widths, twin keys, bad UTF-8)."""

from __future__ import annotations

import struct

import hypothesis.strategies as st
import msgpack
from event_forms import STORED_15

HEAD = b"\x93\xcb" + struct.pack(">d", 1.5)
"""A batch of three elements up to its events."""

BARE = b"\x92\xcb" + struct.pack(">d", 1.5)
"""A batch of two elements up to its events."""


def array_header(count: int, width: int) -> bytes:
    """The header of an array: in the first byte, in 2 or in 4 more."""
    return {0: lambda: bytes([0x90 | count]), 2: lambda: struct.pack(">BH", 0xDC, count)}.get(
        width, lambda: struct.pack(">BI", 0xDD, count)
    )()


def map_header(count: int, width: int) -> bytes:
    """The header of a map: in the first byte, in 2 or in 4 more."""
    return {0: lambda: bytes([0x80 | count]), 2: lambda: struct.pack(">BH", 0xDE, count)}.get(
        width, lambda: struct.pack(">BI", 0xDF, count)
    )()


def array(*items: bytes, width: int = 0) -> bytes:
    return array_header(len(items), width) + b"".join(items)


def mapping(*pairs: tuple[bytes, bytes], width: int = 0) -> bytes:
    """A map whose keys may be anything, twice the same too."""
    return map_header(len(pairs), width) + b"".join(key + value for key, value in pairs)


def text(value: bytes) -> bytes:
    """A string of up to 31 bytes that need not be UTF-8."""
    return bytes([0xA0 | len(value)]) + value


WIDTHS = st.sampled_from([0, 2, 4])
_INTS = st.one_of(
    st.integers(0, 255).map(lambda n: struct.pack(">BB", 0xCC, n)),
    st.integers(0, 2**64 - 1).map(lambda n: struct.pack(">BQ", 0xCF, n)),
    st.integers(-(2**63), 2**63 - 1).map(lambda n: struct.pack(">Bq", 0xD3, n)),
    st.integers(0, 127).map(lambda n: bytes([n])),
)
_EXT = st.one_of(
    st.tuples(st.integers(0, 255), st.binary(max_size=20)).map(
        lambda ext: struct.pack(">BBB", 0xC7, len(ext[1]), ext[0]) + ext[1]
    ),
    # Timestamps: 4, 8 and 12 bytes, most of them out of any calendar.
    st.binary(min_size=4, max_size=4).map(lambda data: b"\xd6\xff" + data),
    st.binary(min_size=8, max_size=8).map(lambda data: b"\xd7\xff" + data),
    st.binary(min_size=12, max_size=12).map(lambda data: b"\xc7\x0c\xff" + data),
)
_WORDS = st.sampled_from(["type", "BlockStored", "BlockRemoved", "AllBlocksCleared", *STORED_15])
_SCALARS = st.one_of(
    st.sampled_from([b"\xc0", b"\xc1", b"\xc2", b"\xc3"]),
    _INTS,
    st.floats().map(msgpack.packb),
    st.floats(width=32).map(lambda x: struct.pack(">Bf", 0xCA, x)),
    st.binary(max_size=9).map(msgpack.packb),
    st.binary(max_size=9).map(text),
    _WORDS.map(msgpack.packb),
    _EXT,
)
VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.builds(
            lambda items, width: array(*items, width=width), st.lists(inner, max_size=6), WIDTHS
        ),
        st.builds(
            lambda pairs, width: mapping(*pairs, width=width),
            st.lists(st.tuples(_WORDS.map(msgpack.packb) | inner, inner), max_size=6),
            WIDTHS,
        ),
    ),
    max_leaves=25,
)
"""Any msgpack value as bytes, in any width, and some that are none."""
