"""Prompts and hashes as people type them."""

from __future__ import annotations

import json
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from kvctl.errors import UsageError
from kvctl.events import hash_text
from kvctl.operate.prompts import parse_hash, parse_tokens

TOKENS = st.lists(st.integers(-5, 2**33), min_size=1)


@given(TOKENS, st.sampled_from([",", " ", ", ", "\n"]), st.booleans())
def test_a_list_of_token_ids_is_read_in_any_spelling(
    tokens: list[int], separator: str, brackets: bool
) -> None:
    text = separator.join(map(str, tokens))
    assert parse_tokens(f"[{text}]" if brackets else text) == tuple(tokens)


@pytest.mark.parametrize(
    "content",
    [
        "1 2 3\n",
        "1\n2\n3\n",
        "[1, 2, 3]",
        '{"token_ids": [1, 2, 3]}',
        json.dumps({"model": "tiny", "prompt": [1, 2, 3]}),
    ],
)
def test_a_file_may_hold_the_list_or_a_request(tmp_path: Path, content: str) -> None:
    (tmp_path / "prompt").write_text(content)
    assert parse_tokens(str(tmp_path / "prompt")) == (1, 2, 3)


@pytest.mark.parametrize(
    "content", ["", "hello", '{"prompt": "hello"}', "[1.5]", "[true]", "[[1]]"]
)
def test_a_file_with_anything_else_is_refused_by_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "prompt").write_text(content)
    with pytest.raises(UsageError, match="prompt holds no list of token ids"):
        parse_tokens(str(tmp_path / "prompt"))


def test_what_is_neither_list_nor_file_is_refused(tmp_path: Path) -> None:
    for text in ("1,2,x", "", " "):
        with pytest.raises(UsageError, match="neither a list of token ids nor a file"):
            parse_tokens(text)
    with pytest.raises(UsageError, match="cannot read token ids"):
        parse_tokens(str(tmp_path))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not text"):
        parse_tokens(str(tmp_path / "binary"))


@given(
    st.one_of(
        st.integers(-(2**63), 2**64 - 1),
        st.binary(min_size=16, max_size=16),
        st.binary(min_size=32, max_size=32),
    )
)
def test_a_hash_is_read_as_it_is_printed(block_hash: int | bytes) -> None:
    assert parse_hash(hash_text(block_hash)) == block_hash


@pytest.mark.parametrize("text", ["", "xyz", "abc", "ab" * 15, "1" * 21, "0x12"])
def test_what_is_no_hash_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no block hash"):
        parse_hash(text)
