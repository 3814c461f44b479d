from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvctl.index.redisdb.requestkeys import (
    fnv1a_64,
    model_key,
    multimodal_extra,
    request_keys,
)


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        # The published test vectors of FNV-1a, 64 bits.
        (b"", 0xCBF29CE484222325),
        (b"a", 0xAF63DC4C8601EC8C),
        (b"foobar", 0x85944171F73967E8),
        (b"chongo was here!\n", 0x46810940EFF5F915),
    ],
)
def test_the_digest_is_the_published_fnv_1a(data: bytes, digest: int) -> None:
    assert fnv1a_64(data) == digest


def test_a_models_chain_begins_at_the_digest_of_seed_and_name() -> None:
    # [0xcbf29ce484222325, null, "m"] in canonical CBOR, written out by hand.
    encoded = bytes.fromhex("83 1b cbf29ce484222325 f6 61 6d")
    assert model_key("", "m") == fnv1a_64(encoded)


def test_a_block_is_named_by_its_parent_and_its_tokens() -> None:
    # Small ints take one byte, 24 and 255 two, 256 three, 65536 five: canonical CBOR.
    encoded = bytes.fromhex("83 07 84 01 1818 190100 1a00010000 f6")
    assert request_keys(7, [1, 24, 256, 65536], 4) == [fnv1a_64(encoded)]


def test_the_next_block_hangs_on_the_one_before() -> None:
    first, second = request_keys(7, [1, 2, 3, 4], 2)
    assert request_keys(first, [3, 4], 2) == [second]
    assert request_keys(7, [1, 2], 2) == [first]


def test_tokens_left_over_make_no_block() -> None:
    assert request_keys(7, [1, 2, 3], 4) == []
    assert len(request_keys(7, [1, 2, 3, 4, 5], 4)) == 1


def test_seed_and_model_make_other_names() -> None:
    keys = {model_key(seed, name) for seed in ("", "42") for name in ("m", "n", "")}
    assert len(keys) == 6


def test_a_multimodal_block_is_named_by_its_pairs() -> None:
    # [7, [1], [{"Hash": "ab", "Offset": -3}]]: the shorter key of a map comes first.
    encoded = bytes.fromhex("83 07 81 01 81 a2 64 48617368 62 6162 66 4f6666736574 22")
    extra = multimodal_extra([("ab", -3), "salt", ["x"], ["y", 1.5]])
    assert request_keys(7, [1], 1, [extra]) == [fnv1a_64(encoded)]


def test_a_salt_or_a_lora_name_is_no_part_of_the_name() -> None:
    assert multimodal_extra(["salt"]) is None
    assert multimodal_extra(None) is None


@given(st.lists(st.integers(0, 2**32 - 1), max_size=40), st.integers(1, 8))
def test_every_name_fits_64_bits_and_depends_on_all_before(tokens: list[int], size: int) -> None:
    keys = request_keys(model_key("", "m"), tokens, size)
    assert len(keys) == len(tokens) // size
    assert all(0 <= key < 2**64 for key in keys)
    if keys:
        other = [tokens[0] ^ 1, *tokens[1:]]
        assert not set(keys) & set(request_keys(model_key("", "m"), other, size))
