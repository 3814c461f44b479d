"""Reconcile over an index that keeps neither ranks nor times: llm-d's, in a real Valkey."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import requests
from driving import complete, fault, fleet_pod

from kvctl.fleet import Pod
from kvctl.index.redisdb import LlmdIndex, RedisUrl, parse_url
from kvctl.operate.memory import FileMemory
from kvctl.operate.podnames import pod_names
from kvctl.operate.reconcile import ReconcileOptions, Reconciler, Round
from kvctl.operate.resync import ResyncError, resync
from kvctl.operate.sources import stream_sources
from kvctl.sim import SimConfig, SimPod
from kvctl.stream import StreamReader


class Bench:
    """A simulated pod, and llm-d's index of it."""

    def __init__(self, pod: SimPod, where: RedisUrl, folder: Path) -> None:
        self.pod = pod
        self.known = fleet_pod(pod)
        self.index = LlmdIndex(where, names=pod_names([self.known]))
        self.memory = FileMemory("redis://x", folder)

    def listen(self) -> None:
        """Feed the index with all that the pod's streams have."""
        with StreamReader(list(stream_sources(self.known))) as reader:
            deadline = time.monotonic() + 20
            while not reader.settled():
                assert time.monotonic() < deadline
                for record in reader.read(0.02):
                    self.index.apply(record)
            for record in reader.read(0):
                self.index.apply(record)
        self.index.commit()

    def held(self) -> int:
        return self.index.stored_before(self.pod.name, None, None)

    def reconciler(self, pods: list[Pod] | None = None, **options: Any) -> Reconciler:
        whole = options.pop("whole", False)
        rebuild = options.pop("rebuild", None)
        return Reconciler(
            self.index,
            self.memory,
            [self.known] if pods is None else pods,
            ReconcileOptions(**({"clock_margin": 0.0, "timeout": 5.0} | options)),
            whole_fleet=whole,
            rebuild=rebuild,
        )

    def round(self, pods: list[Pod] | None = None, **options: Any) -> Round:
        return self.reconciler(pods, **options).run()

    def post(self, path: str, **params: object) -> None:
        requests.post(self.pod.api + path, params=params, timeout=10).raise_for_status()


@pytest.fixture
def where(url: str) -> RedisUrl:
    return parse_url(f"{url}?block_size=16")


@pytest.fixture
def bench(where: RedisUrl, tmp_path: Path) -> Iterator[Bench]:
    with SimPod(SimConfig()) as pod:
        complete(pod)
        bench = Bench(pod, where, tmp_path / "memory")
        bench.listen()
        assert bench.held() == 4
        yield bench
        bench.index.close()


def verdicts(done: Round) -> list[str]:
    return [each.decision.verdict.value for each in done.outcomes]


def test_an_awake_pod_is_kept_and_a_sleeping_one_purged(bench: Bench) -> None:
    done = bench.round()
    assert (verdicts(done), done.exit_code, bench.held()) == (["keep"], 0, 4)
    bench.post("/sleep", level=1)
    done = bench.round()
    assert (verdicts(done), done.purged, bench.held()) == (["purge"], 4, 0)
    assert "rank" not in done.outcomes[0].to_dict()


def test_a_pod_that_woke_after_the_plan_is_not_purged(bench: Bench) -> None:
    bench.post("/sleep", level=1)
    reconciler = bench.reconciler()
    plan, outcomes = reconciler.plan()
    bench.post("/wake_up")
    complete(bench.pod, list(range(700, 732)))
    bench.listen()
    before = bench.held()
    done = reconciler.apply(plan, outcomes)
    assert (done.purged, bench.held()) == (0, before)
    assert "is not any more" in done.outcomes[0].decision.reason
    assert done.exit_code == 3


def test_a_sleep_between_two_rounds_stays_suspect_until_it_is_purged(bench: Bench) -> None:
    """Nothing in such an index can settle it."""
    bench.round()
    bench.post("/sleep", level=1)
    bench.post("/wake_up")
    for _ in range(2):
        assert verdicts(bench.round()) == ["suspect"]
    assert bench.round(purge_suspect=True).purged == 4
    complete(bench.pod, list(range(700, 732)))
    bench.listen()
    left = bench.held()
    assert left
    assert verdicts(bench.round(purge_suspect=True)) == ["keep"]
    assert bench.held() == left


def test_a_restart_between_two_rounds_is_suspect_where_no_times_are_kept(bench: Bench) -> None:
    bench.round()
    fault(bench.pod, "restart")
    done = bench.round()
    assert verdicts(done) == ["suspect"]
    assert "does not tell what is older" in done.outcomes[0].decision.reason


def test_a_pod_of_no_known_name_is_suspect_and_not_purged(bench: Bench, db: redis.Redis) -> None:
    done = bench.round(pods=[], whole=True)
    assert verdicts(done) == ["suspect"]
    assert "no pod of the fleet has this name" in done.outcomes[0].decision.reason
    assert bench.held() == 4
    assert bench.round(pods=[], whole=True, purge_suspect=True).purged == 4


def test_an_unreachable_pod_is_unknown(bench: Bench) -> None:
    bench.pod.close()
    done = bench.round(timeout=1.0)
    assert (verdicts(done), bench.held()) == (["unknown"], 4)


def test_of_two_ranks_one_asleep_makes_the_pod_suspect(where: RedisUrl, tmp_path: Path) -> None:
    with SimPod(SimConfig(name="pod-dp", ranks=2)) as pod:
        for rank in (0, 1):
            complete(pod, list(range(1000 * rank, 1000 * rank + 32)), rank=rank)
        bench = Bench(pod, where, tmp_path)
        bench.listen()
        assert verdicts(bench.round()) == ["keep"]
        fault(pod, "sleep-rank", rank=1)
        done = bench.round()
        assert verdicts(done) == ["suspect"]
        assert "does not tell ranks apart" in done.outcomes[0].decision.reason
        assert done.outcomes[0].decision.evidence["ranks"] == ["awake", "sleeping-1"]
        assert bench.held() == 4
        bench.post("/sleep", level=1)
        assert verdicts(bench.round()) == ["purge"]
        assert bench.held() == 0
        bench.index.close()


def test_a_purged_pod_that_is_awake_is_rebuilt_from_its_replay(bench: Bench) -> None:
    bench.round()
    bench.post("/sleep", level=1)
    bench.post("/wake_up")
    complete(bench.pod, list(range(700, 732)))
    bench.listen()
    done = bench.round(purge_suspect=True, rebuild=lambda pod: resync(bench.index, pod))
    assert [each.pod for each in done.resynced] == ["pod-a"]
    assert done.exit_code == 0
    truth = {block_hash for block_hash, _copies in bench.pod.engine.cache()[0]["blocks"]}
    assert {entry.block_hash for entry in bench.index.entries("pod-a")} == truth
    assert done.to_dict()["resynced"][0]["lost"] == 0


def test_a_pod_without_replay_is_said_not_to_be_rebuilt(bench: Bench) -> None:
    bench.round()
    bench.post("/sleep", level=1)
    bench.post("/wake_up")
    deaf = fleet_pod(bench.pod, replay="none")
    with pytest.raises(ResyncError, match="no replay endpoint"):
        resync(bench.index, deaf)
    assert bench.held() == 4
    done = bench.round([deaf], purge_suspect=True, rebuild=lambda pod: resync(bench.index, pod))
    assert "no replay endpoint" in done.not_rebuilt[0]
    assert done.exit_code == 3


def test_a_replay_that_does_not_come_leaves_the_index_as_it_was(bench: Bench) -> None:
    bench.pod.close()
    with pytest.raises(ResyncError, match="is not rebuilt"):
        resync(bench.index, bench.known, timeout=1.0)
    assert bench.held() == 4
