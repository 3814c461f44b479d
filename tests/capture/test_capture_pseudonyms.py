"""Pseudonyms are one to one, and tell nothing without the key."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
import pytest
from hypothesis import given

from kvctl.capture.pseudonyms import Pseudonyms

KEY = bytes(range(32))
PSEUDONYMS = Pseudonyms(KEY)


@pytest.mark.parametrize("length", [0, 1, 2, 7, 8, 9, 16, 32])
def test_hashes_of_every_length_differ_where_they_did(length: int) -> None:
    hashes = {bytes([number]) * bool(length) + bytes(max(0, length - 1)) for number in range(256)}
    hashes |= {value[::-1] for value in hashes}
    redacted = {value: PSEUDONYMS.block_hash(value) for value in hashes}
    assert len(set(redacted.values())) == len(hashes)
    assert all(len(value) == length for value in redacted.values() if isinstance(value, bytes))


@pytest.mark.parametrize("length", [1, 2])
def test_short_bytes_are_permuted(length: int) -> None:
    values = [number.to_bytes(length, "big") for number in range(256**length)]
    assert sorted(map(PSEUDONYMS.blob, values)) == values


@given(st.sets(st.binary(max_size=40), min_size=2))
def test_different_bytes_have_different_pseudonyms_of_the_same_length(values: set[bytes]) -> None:
    redacted = {PSEUDONYMS.blob(value) for value in values}
    assert len(redacted) == len(values)
    assert sorted(map(len, redacted)) == sorted(map(len, values))


def test_bytes_with_a_common_end_have_nothing_in_common_afterwards() -> None:
    one, two = (PSEUDONYMS.blob(text + bytes(24)) for text in (b"alice!!!", b"bob!!!!!"))
    assert one[-8:] != two[-8:]
    assert one[8:24] != two[8:24]


@given(st.sets(st.integers(-(2**63), 2**64 - 1), min_size=2, max_size=30))
def test_int_hashes_keep_sign_and_what_signed_64_bits_hold(hashes: set[int]) -> None:
    redacted = {value: PSEUDONYMS.block_hash(value) for value in hashes}
    assert len(set(redacted.values())) == len(hashes)
    for old, new in redacted.items():
        assert isinstance(new, int)
        assert (old < 0) == (new < 0)
        assert (old < 2**63) == (new < 2**63)
        assert -(2**63) <= new < 2**64


@given(st.integers(-(2**63), -1))
def test_the_signed_and_the_unsigned_form_of_a_hash_stay_one_hash(value: int) -> None:
    signed, unsigned = PSEUDONYMS.block_hash(value), PSEUDONYMS.block_hash(value + 2**64)
    assert isinstance(signed, int)
    assert signed + 2**64 == unsigned


@given(st.sets(st.text(), min_size=2))
def test_different_names_have_different_short_pseudonyms(names: set[str]) -> None:
    redacted = {name: PSEUDONYMS.name(name) for name in names}
    assert len(set(redacted.values())) == len(names)
    for old, new in redacted.items():
        assert new == "" if old == "" else len(new) == 17
        assert set(new) <= set("x0123456789abcdef")


def test_another_key_gives_other_pseudonyms() -> None:
    other = Pseudonyms(KEY[:-1])
    for value in range(100):
        assert PSEUDONYMS.token(value) != other.token(value)
        assert PSEUDONYMS.block_hash(value) != other.block_hash(value)
        assert PSEUDONYMS.name(str(value)) != other.name(str(value))


def test_neighbouring_tokens_are_scattered() -> None:
    tokens = [PSEUDONYMS.token(token) for token in range(1000)]
    assert max(tokens) > 2**31 > min(tokens)
    steps = {after - before for before, after in itertools.pairwise(tokens)}
    assert len(steps) > 990
