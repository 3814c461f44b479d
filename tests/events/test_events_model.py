"""Events and block hashes as kvctl names them."""

from __future__ import annotations

import pytest

from kvctl.events import (
    AllBlocksCleared,
    BlockHash,
    BlockRemoved,
    BlockStored,
    Event,
    UnknownEvent,
    event_type,
    hash_text,
)


@pytest.mark.parametrize(
    ("block_hash", "text"),
    [
        (0, "0"),
        (2**64 - 1, "18446744073709551615"),
        (-(2**63), "-9223372036854775808"),
        (b"", ""),
        (b"\xab\x00" * 8, "ab00" * 8),
        (bytes(range(32)), "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"),
    ],
)
def test_a_block_hash_is_printed_in_decimal_or_in_lower_case_hex(
    block_hash: BlockHash, text: str
) -> None:
    assert hash_text(block_hash) == text


@pytest.mark.parametrize(
    ("event", "tag"),
    [
        (BlockStored([]), "BlockStored"),
        (BlockRemoved([]), "BlockRemoved"),
        (AllBlocksCleared(), "AllBlocksCleared"),
        (UnknownEvent("Moved", {}), "Moved"),
    ],
)
def test_an_event_has_its_type_on_the_wire(event: Event, tag: str) -> None:
    assert event_type(event) == tag
