from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvctl.index.redisdb.podfields import KEY, PodField, parse_field


def test_a_field_is_written_byte_for_byte_as_llm_d_does() -> None:
    told = PodField("10.0.0.7", "gpu", group=0).encode()
    assert told == (
        b'{"PodIdentifier":"10.0.0.7","DeviceTier":"gpu","Speculative":false,'
        b'"HasGroup":true,"GroupIdx":0}'
    )
    plain = PodField("10.0.0.7", "cpu").encode()
    assert json.loads(plain)["HasGroup"] is False
    assert json.loads(plain)["GroupIdx"] == 0


def test_go_escapes_what_html_would_take_for_markup() -> None:
    assert b"\\u003cpod\\u0026\\u003e" in PodField("<pod&>", "gpu").encode()


@given(st.text(), st.text(), st.booleans(), st.none() | st.integers(0, 2**31))
def test_what_is_written_is_read_back(
    pod: str, tier: str, speculative: bool, group: int | None
) -> None:
    field = PodField(pod, tier, speculative, group)
    assert parse_field(field.encode(), b"") == field


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (b"10.0.0.7@gpu", PodField("10.0.0.7", "gpu")),
        (b"10.0.0.7:8000@cpu[speculative]", PodField("10.0.0.7:8000", "cpu", speculative=True)),
    ],
)
def test_the_form_before_2026_is_read_too(field: bytes, expected: PodField) -> None:
    assert parse_field(field, b"") == expected


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (b"name", b""),
        (b"10.0.0.7@gpu", b"1"),
        (b'{"PodIdentifier":"a"}', b""),
        (b'{"PodIdentifier":1,"DeviceTier":"gpu"}', b""),
        (b'{"PodIdentifier":"a","DeviceTier":"gpu"', b""),
        (b"\xff\xfe@gpu", b""),
        (b'{"PodIdentifier":"a","DeviceTier":"gpu"}', b"0"),
        (b"a@GPU", b""),
        (b"", b""),
    ],
)
def test_anything_else_is_nobody_s_claim(field: bytes, value: bytes) -> None:
    assert parse_field(field, value) is None


@given(st.binary(), st.binary(max_size=2))
def test_no_bytes_break_the_reader(field: bytes, value: bytes) -> None:
    found = parse_field(field, value)
    assert found is None or not value


@pytest.mark.parametrize("key", [b"007", b"-1", b"1a", b"", b"123456789012345678901", b"1\n"])
def test_only_decimal_numbers_are_blocks(key: bytes) -> None:
    assert KEY.match(key) is None
    assert KEY.match(b"18446744073709551615")
