from __future__ import annotations

from typing import Any

import pytest
import redis

from kvctl.index import IndexStoreError, Prompt
from kvctl.index.redisdb import KthenaIndex, parse_url


@pytest.fixture
def index(db: redis.Redis, url: str) -> Any:
    db.hset("matrix:kv:block:m@111", mapping={"pod-a.ns": "1700000000", "pod-b.ns": "1700000001"})
    db.hset("matrix:kv:block:m@222", "pod-a.ns", "1700000002000")
    db.hset("matrix:kv:block:org/n@x@333", "pod-b.ns", "1700000003")
    with KthenaIndex(parse_url(f"{url}?layout=kthena"), names={"pod-a.ns": "pod-a"}) as index:
        yield index


def test_claims_are_counted_per_pod_and_model(index: KthenaIndex) -> None:
    summary = index.summary()
    assert summary.blocks == 3
    assert [(each.pod, each.model, each.entries) for each in summary.streams] == [
        ("pod-a", "m", 2),
        ("pod-b.ns", "m", 1),
        ("pod-b.ns", "org/n@x", 1),
    ]
    assert {fact.pod: fact.entries for fact in index.facts()} == {"pod-a": 2, "pod-b.ns": 2}


def test_an_entry_bears_the_time_of_its_claim_in_seconds(index: KthenaIndex) -> None:
    times = {entry.block_hash: entry.last_stored for entry in index.entries("pod-a")}
    assert times == {111: 1700000000.0, 222: 1700000002.0}


def test_a_purge_takes_the_pods_claims_and_nothing_else(
    db: redis.Redis, index: KthenaIndex
) -> None:
    db.hset("matrix:kv:block:m@444", mapping={"pod-a.ns": "not a time", "pod-c": "1"})
    db.hset("other:block:m@1", "pod-a.ns", "1700000000")
    db.set("matrix:kv:block:m@555", "a string")
    assert index.purge("pod-a") == 2
    assert index.purge("pod-a") == 0
    assert db.hkeys("matrix:kv:block:m@111") == [b"pod-b.ns"]
    assert not db.exists("matrix:kv:block:m@222")
    assert db.hkeys("matrix:kv:block:m@444") == [b"pod-a.ns", b"pod-c"]
    assert db.hkeys("other:block:m@1") == [b"pod-a.ns"]
    assert db.get("matrix:kv:block:m@555") == b"a string"


def test_a_prompt_cannot_be_matched_and_it_says_why(index: KthenaIndex) -> None:
    with pytest.raises(IndexStoreError, match="a way of its own"):
        index.match(Prompt((1, 2)))


def test_neither_rank_nor_time_can_be_asked_for(index: KthenaIndex) -> None:
    with pytest.raises(IndexStoreError):
        index.purge("pod-a", 1)
    with pytest.raises(IndexStoreError):
        index.stored_before("pod-a", None, 5.0)
