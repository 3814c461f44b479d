from __future__ import annotations

import pytest

from kvctl.errors import UsageError
from kvctl.index import IndexStoreError
from kvctl.index.redisdb import LlmdIndex, parse_url


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("redis://h:6379/2", "redis://h:6379/2"),
        ("rediss://h", "rediss://h"),
        ("valkey://h:1", "redis://h:1"),
        ("valkeys://h", "rediss://h"),
        ("unix:///run/valkey.sock?db=3", "unix:///run/valkey.sock?db=3"),
        ("redis://h?seed=7&protocol=3", "redis://h?protocol=3"),
    ],
)
def test_a_url_goes_to_the_server_without_what_is_kvctls(url: str, server: str) -> None:
    assert parse_url(url).url == server


def test_what_the_layout_needs_is_taken_from_the_url() -> None:
    where = parse_url("redis://h?seed=42&block_size=64")
    assert (where.layout, where.seed, where.block_size) == ("llm-d", "42", 64)
    assert parse_url("redis://h?layout=kthena").layout == "kthena"


def test_a_password_is_never_shown() -> None:
    where = parse_url("redis://user:secret@h:6379/0")
    assert "secret" not in where.shown
    assert "secret" not in repr(where)
    assert "secret" in where.url


@pytest.mark.parametrize(
    ("url", "names"),
    [
        ("redis://h?layout=dynamo", "layout=dynamo"),
        ("redis://h?block_size=none", "block_size=none"),
        ("redis://h?block_size=0", "block_size=0"),
        ("redis://h?hash=sha256_cbor", "sha256_cbor"),
        ("http://h", "no URL of Redis"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(url: str, names: str) -> None:
    with pytest.raises(UsageError, match=names):
        parse_url(url)


def test_a_server_that_is_not_there_is_named_with_a_remedy() -> None:
    with pytest.raises(IndexStoreError, match=r"127.0.0.1:1 does not answer.*is the server"):
        LlmdIndex(parse_url("redis://127.0.0.1:1"))


def test_an_unknown_option_of_the_url_is_one_sentence() -> None:
    with pytest.raises((UsageError, IndexStoreError)):
        LlmdIndex(parse_url("redis://127.0.0.1:1/not-a-number"))
