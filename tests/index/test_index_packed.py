"""Blocks packed into bytes: what went in comes out, by block hash."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from kvctl.events import BlockHash
from kvctl.index.content import ANCHORED_LENGTH, Content
from kvctl.index.packed import (
    all_anchored,
    content_of,
    contents_of,
    count_of,
    lora_under,
    pack,
    stored_at,
)

HASHES = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.integers(0, 3).map(lambda at: at << 8),  # their last eight bits are equal
    st.binary(min_size=32, max_size=32),
    st.just(b""),
)
CONTENTS = st.one_of(
    st.binary(min_size=ANCHORED_LENGTH, max_size=ANCHORED_LENGTH),
    st.binary(min_size=ANCHORED_LENGTH, max_size=ANCHORED_LENGTH).map(lambda each: each + b"?"),
)
LORAS = st.one_of(st.none(), st.text(max_size=20))


def content(number: int) -> Content:
    return number.to_bytes(ANCHORED_LENGTH, "big")


@given(blocks=st.lists(st.tuples(HASHES, CONTENTS)), stored=st.floats(), lora=LORAS)
def test_every_block_is_found_by_its_hash(
    blocks: list[tuple[BlockHash, Content]], stored: float, lora: str | None
) -> None:
    names = [name for name, _content in blocks]
    contents = [each for _name, each in blocks]
    told = []
    for run, packed in pack(names, contents, stored, lora):
        found = [content_of(packed, name) for name in run]
        assert found == contents_of(packed)
        assert count_of(packed) == len(run)
        assert all(all_anchored(packed) == (len(each) == ANCHORED_LENGTH) for each in found)
        assert lora_under(packed) == lora
        assert stored_at(packed) == pytest.approx(stored, nan_ok=True)
        told += zip(run, found, strict=True)
    assert told == blocks


def test_blocks_of_an_event_share_their_bytes() -> None:
    names: list[BlockHash] = [11, 12, 13, 14]
    [(run, packed)] = pack(names, [content(at) for at in range(4)], 1.0, None)
    assert run == names
    assert len(packed) <= 4 * (ANCHORED_LENGTH + 1) + 10


def test_blocks_whose_check_bytes_are_equal_are_packed_apart() -> None:
    runs = pack([0x101, 0x102, 0x201], [content(at) for at in range(3)], 1.0, None)
    assert [run for run, _packed in runs] == [[0x101, 0x102], [0x201]]


def test_more_blocks_than_there_are_check_bytes_are_packed_apart() -> None:
    names: list[BlockHash] = list(range(256))
    runs = pack(names, [content(at) for at in range(256)], 1.0, None)
    assert [len(run) for run, _packed in runs] == [255, 1]
