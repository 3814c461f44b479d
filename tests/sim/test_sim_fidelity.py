"""The simulator against the recordings of a real vLLM 0.32 engine: same requests, same events.

The prompts are the token ids in the recorded events; what the events do not show (the tokens
behind the last whole block, how much was generated) follows from the token counters in the
scrapes that were made beside them, and from the events of decode steps.
"""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from recordings import METRICS, wire_batches
from simtools import complete, give_up, metric, post, replayed

from kvctl.sim import SimConfig, SimPod

CONFIG = SimConfig(name="pod-a", blocks=64, block_size=32, wire="0.32")


def recorded(name: str) -> list[tuple[int, list[Any]]]:
    return [(wire.seq, msgpack.unpackb(wire.payload)) for wire in wire_batches(name)]


def stored(name: str, batch: int) -> list[int]:
    """Tokens of the store in a recorded batch."""
    events = recorded(name)[batch][1][1]
    return next(event["token_ids"] for event in events if event["type"] == "BlockStored")


def compare(ours: list[tuple[int, list[Any]]], theirs: list[tuple[int, list[Any]]]) -> None:
    """Everything but the times: seqs, types, order, hashes, parents, tokens, sizes."""
    assert [seq for seq, _payload in ours] == [seq for seq, _payload in theirs]
    for (_seq, (_ts, events, rank)), (_, (_, expected, expected_rank)) in zip(
        ours, theirs, strict=True
    ):
        assert rank == expected_rank
        assert [event["type"] for event in events] == [event["type"] for event in expected]
        assert events == expected


def run_warm(pod: SimPod) -> None:
    prompt = stored("warm", 0)
    extension = stored("warm", 2)
    # 33 tokens or more were generated: the eleventh block is the model's own.
    complete(pod, prompt, 40, sim_output=[*stored("warm", 1), *range(8)])
    complete(pod, [*prompt, *extension, *range(8)], 8)  # 360 tokens: 1000 were queried in all
    complete(pod, prompt, 8)


def run_reset_idle(pod: SimPod) -> None:
    assert post(pod, "/reset_prefix_cache").json() == {"success": True}
    complete(pod, stored("warm", 0), 8)


def run_sleep1(pod: SimPod) -> None:
    complete(pod, stored("warm", 0), 8)
    post(pod, "/sleep", level=1)
    # A request that hung and was given up: its step after the wake carries the clear alone.
    give_up(pod, [1, 2, 3])
    post(pod, "/wake_up")
    complete(pod, stored("warm", 0), 8)


def run_evict(pod: SimPod) -> None:
    for _seq, (_ts, events, _rank) in recorded("evict"):
        for event in events:
            if event["type"] == "BlockStored":
                complete(pod, event["token_ids"], 8)


def value(scrape: str, series: str) -> float:
    """One sample of a recorded scrape, read by hand."""
    for line in (METRICS / f"{scrape}.txt").read_text().splitlines():
        if line.startswith(series):
            return float(line.rsplit(" ", 1)[1])
    raise AssertionError(series)


def check_counters(pod: SimPod, scrape: str) -> None:
    for name in ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"):
        assert metric(pod, name) == value(scrape, name)


def test_the_recorded_requests_bring_the_recorded_events() -> None:
    with SimPod(CONFIG) as pod:
        run_warm(pod)
        compare(replayed(pod), recorded("warm"))
        check_counters(pod, "awake")
        run_reset_idle(pod)
        compare(replayed(pod, start=4), recorded("reset-idle"))
        check_counters(pod, "after-reset")
        run_sleep1(pod)
        compare(replayed(pod, start=5), recorded("sleep1"))
        run_evict(pod)
        compare(replayed(pod, start=8), recorded("evict"))


def test_level_2_with_a_wake_in_parts_brings_the_recorded_events() -> None:
    prompt = stored("level2", 0)
    with SimPod(CONFIG) as pod:
        complete(pod, prompt, 8)
        assert post(pod, "/sleep", level=2).json() == {"status": "sleeping", "level": 2}
        assert post(pod, "/wake_up", tags="weights").json()["status"] == "sleeping"
        assert post(pod, "/wake_up", tags="kv_cache").json()["status"] == "awake"
        complete(pod, prompt, 8)
        theirs = [(seq - 56, payload) for seq, payload in recorded("level2")]
        compare(replayed(pod), theirs)


def test_a_salted_prompt_has_the_recorded_hashes() -> None:
    prompt = stored("salt", 0)
    with SimPod(SimConfig(name="pod-b", blocks=64, block_size=32)) as pod:
        complete(pod, prompt, cache_salt="tenant-1")
        complete(pod, stored("salt", 1))
        compare(replayed(pod), recorded("salt"))


def test_two_ranks_clear_each_with_its_own_next_request() -> None:
    theirs = recorded("dp2")
    config = SimConfig(name="pod-b", blocks=64, block_size=32, ranks=2)
    with SimPod(config) as pod:
        for _seq, (_ts, events, rank) in theirs:
            if events[0]["type"] == "AllBlocksCleared" and _seq == 3:
                assert post(pod, "/reset_prefix_cache").json() == {"success": True}
            prompt = events[-1]["token_ids"]
            complete(pod, prompt, headers={"X-data-parallel-rank": str(rank)})
        for rank in (0, 1):
            expected = [(seq, payload) for seq, payload in theirs if payload[2] == rank]
            compare(replayed(pod, rank), expected)


@pytest.mark.parametrize("name", ["warm", "evict", "fleet"])
def test_every_recorded_hash_follows_from_its_tokens(name: str) -> None:
    """The digest that the simulator names blocks by is the engine's own."""
    from kvctl.events.enginehash import ROOT_DIGEST, block_digest

    digests: dict[tuple[str, int], bytes] = {}
    checked = 0
    for wire in wire_batches(name):
        for event in msgpack.unpackb(wire.payload)[1]:
            if event["type"] != "BlockStored":
                continue
            parent_name = event["parent_block_hash"]
            parent = ROOT_DIGEST if parent_name is None else digests.get((wire.pod, parent_name))
            if parent is None:
                continue
            for number, block_hash in enumerate(event["block_hashes"]):
                tokens = event["token_ids"][number * 32 : (number + 1) * 32]
                parent = block_digest(parent, tokens, [], None)
                whole = isinstance(block_hash, bytes)
                assert (parent if whole else int.from_bytes(parent[-8:], "big")) == block_hash
                digests[wire.pod, block_hash] = parent
                checked += 1
    assert checked > 10
