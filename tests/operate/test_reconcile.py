"""Reconcile against simulated engines: every state, and what may happen between two rounds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from driving import complete, fault, fleet_pod

from kvctl.errors import KvctlError
from kvctl.fleet import FleetSnapshot, Pod
from kvctl.index import SqliteIndex
from kvctl.operate.reconcile import ReconcileOptions, Reconciler, Round
from kvctl.operate.resync import resync
from kvctl.operate.sources import stream_sources
from kvctl.sim import SimConfig, SimPod
from kvctl.stream import StreamReader


class Bench:
    """A pod, an index that follows its stream when told to, and rounds of reconcile."""

    def __init__(self, pod: SimPod, path: Path) -> None:
        self.pod = pod
        self.known = fleet_pod(pod)
        self.index = SqliteIndex(path)

    def listen(self) -> int:
        """Take in what the stream has; returns the entries."""
        with StreamReader(
            list(stream_sources(self.known)), positions=self.index.positions()
        ) as reader:
            deadline = time.monotonic() + 20
            while not reader.settled():
                assert time.monotonic() < deadline
                for record in reader.read(0.02):
                    self.index.apply(record)
            while records := reader.read(0):
                for record in records:
                    self.index.apply(record)
        self.index.commit()
        return self.index.entries_in(self.pod.name)

    def round(self, pods: list[Pod] | None = None, *, whole: bool = False, **options) -> Round:
        rebuild = options.pop("rebuild", None)
        speaks_of = options.pop("speaks_of", lambda _pod: True)
        given = {"clock_margin": 0.0, "timeout": 5.0} | options
        return Reconciler(
            self.index,
            self.index,
            [self.known] if pods is None else pods,
            ReconcileOptions(**given),
            whole_fleet=whole,
            speaks_of=speaks_of,
            rebuild=rebuild,
        ).run()

    def post(self, path: str, **params: object) -> None:
        requests.post(self.pod.api + path, params=params, timeout=10).raise_for_status()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with SimPod(SimConfig()) as pod:
        complete(pod)
        bench = Bench(pod, tmp_path / "index.sqlite")
        assert bench.listen() == 4
        yield bench
        bench.index.close()


def verdicts(done: Round) -> list[str]:
    return [each.decision.verdict.value for each in done.outcomes]


# Every row of the state table of the contracts.
@pytest.mark.parametrize(
    ("calls", "verdict", "left"),
    [
        ([], "keep", 4),
        ([("/sleep", {"level": 1})], "purge", 0),
        ([("/sleep", {"level": 2})], "purge", 0),
        ([("/sleep", {"level": 0})], "keep", 4),
        ([("/sleep", {"level": 0}), ("/release_kv_cache_memory", {})], "purge", 0),
        ([("/pause", {})], "suspect", 4),
        ([("/pause", {"clear_cache": "false"})], "suspect", 4),
        ([("/sleep", {"level": 1}), ("/wake_up", {"tags": "weights"})], "purge", 0),
    ],
)
def test_every_state_gets_its_verdict(bench: Bench, calls: list, verdict: str, left: int) -> None:
    assert verdicts(bench.round()) == ["keep"]
    for path, params in calls:
        bench.post(path, **params)
    planned = bench.round(dry_run=True)
    assert verdicts(planned) == [verdict]
    assert bench.index.entries_in("pod-a") == 4
    assert planned.exit_code == (0 if verdict == "keep" else 3)
    done = bench.round()
    assert bench.index.entries_in("pod-a") == left
    assert done.purged == 4 - left
    assert done.exit_code == (3 if verdict == "suspect" else 0)
    assert bench.round().purged == 0


def test_every_decision_has_its_evidence(bench: Bench) -> None:
    bench.post("/sleep", level=2)
    row = bench.round(dry_run=True).to_dict()["pods"][0]
    assert (row["state"], row["stale_entries"], row["entries"]) == ("sleeping-2", 4, 4)
    assert row["evidence"]['vllm:engine_sleep_state{engine="0",sleep_state="discard_all"}'] == 1


def test_a_sleep_at_level_1_between_two_rounds_is_settled_by_its_clear(bench: Bench) -> None:
    bench.round()
    bench.post("/sleep", level=1)
    bench.post("/wake_up")
    suspect = bench.round()
    assert verdicts(suspect) == ["suspect"]
    assert (suspect.suspect, suspect.exit_code) == (4, 3)
    assert "level is not to be told" in suspect.outcomes[0].decision.reason
    assert verdicts(bench.round()) == ["suspect"]
    complete(bench.pod, list(range(700, 732)))
    assert bench.listen() == 2
    settled = bench.round()
    assert verdicts(settled) == ["keep"]
    assert "reported a clear" in settled.outcomes[0].decision.reason
    assert bench.index.entries_in("pod-a") == 2


def test_a_sleep_at_level_0_between_two_rounds_is_settled_by_batches_without_a_clear(
    bench: Bench,
) -> None:
    bench.round()
    bench.post("/sleep", level=0)
    bench.post("/wake_up")
    assert verdicts(bench.round()) == ["suspect"]
    complete(bench.pod, list(range(700, 732)))
    assert bench.listen() == 6
    settled = bench.round()
    assert verdicts(settled) == ["keep"]
    assert "the stream went on" in settled.outcomes[0].decision.reason


def test_a_lost_batch_settles_nothing(bench: Bench) -> None:
    bench.round()
    bench.post("/sleep", level=1)
    bench.post("/wake_up")
    assert verdicts(bench.round()) == ["suspect"]
    fault(bench.pod, "drop", batches=1, keep_in_buffer="false")
    complete(bench.pod, list(range(700, 732)))  # the clear is in this one, and lost for good
    complete(bench.pod, list(range(800, 832)))
    bench.listen()
    assert verdicts(bench.round()) == ["suspect"]
    assert bench.round(purge_suspect=True).purged == 6
    assert bench.index.entries_in("pod-a") == 0


def test_a_woken_pods_new_blocks_stay(bench: Bench) -> None:
    bench.round()
    bench.post("/sleep", level=1)
    reconciler = Reconciler(
        bench.index,
        bench.index,
        [bench.known],
        ReconcileOptions(clock_margin=0.0),
        whole_fleet=False,
    )
    plan, outcomes = reconciler.plan()
    bench.post("/wake_up")
    fault(bench.pod, "flush", mode="never-clear")
    complete(bench.pod, list(range(700, 732)))
    assert bench.listen() == 6
    assert reconciler.apply(plan, outcomes).purged == 4
    assert bench.index.entries_in("pod-a") == 2


def test_a_restart_between_two_rounds_voids_what_was_stored_before(bench: Bench) -> None:
    bench.round()
    fault(bench.pod, "restart")
    done = bench.round()
    assert verdicts(done) == ["purge"]
    assert "process started after" in done.outcomes[0].decision.reason
    assert bench.index.entries_in("pod-a") == 0


def test_a_reset_of_an_idle_engine_is_seen_by_no_scrape(bench: Bench) -> None:
    """The case that reconcile does not cover, and says so."""
    bench.round()
    bench.post("/reset_prefix_cache")
    done = bench.round()
    assert (verdicts(done), done.exit_code) == (["keep"], 0)
    assert bench.index.entries_in("pod-a") == 4


def test_an_unreachable_pod_is_unknown_and_never_purged_unasked(bench: Bench) -> None:
    bench.round()
    bench.pod.close()
    for _ in range(2):
        done = bench.round(timeout=1.0)
        assert (verdicts(done), done.unknown, done.exit_code) == (["unknown"], 1, 3)
    assert bench.index.entries_in("pod-a") == 4
    assert bench.round(timeout=1.0, purge_unknown_after=3600.0).purged == 0
    assert bench.round(timeout=1.0, purge_unknown_after=0.0).purged == 4


def test_of_a_mixed_pod_only_the_sleeping_rank_is_purged(tmp_path: Path) -> None:
    with SimPod(SimConfig(name="pod-dp", ranks=2)) as pod:
        for rank in (0, 1):
            complete(pod, list(range(1000 * rank, 1000 * rank + 32)), rank=rank)
        bench = Bench(pod, tmp_path / "dp.sqlite")
        assert bench.listen() == 4
        fault(pod, "sleep-rank", rank=1)
        done = bench.round()
        assert verdicts(done) == ["keep", "purge"]
        assert [bench.index.entries_in("pod-dp", rank) for rank in (0, 1)] == [2, 0]
        bench.index.close()


def test_a_purged_pod_that_is_awake_is_rebuilt_from_its_replay(bench: Bench) -> None:
    bench.round()
    fault(bench.pod, "restart")
    complete(bench.pod, list(range(700, 732)))
    done = bench.round(rebuild=lambda pod: resync(bench.index, pod))
    assert verdicts(done) == ["purge"]
    assert [each.pod for each in done.resynced] == ["pod-a"]
    truth = {block_hash for block_hash, _copies in bench.pod.engine.cache()[0]["blocks"]}
    assert {entry.block_hash for entry in bench.index.entries("pod-a")} == truth
    assert bench.listen() == len(truth)


def test_a_pod_that_is_gone_is_purged_only_where_the_whole_fleet_is_known(bench: Bench) -> None:
    assert bench.round(pods=[], whole=False).outcomes == ()
    done = bench.round(pods=[], whole=True)
    assert verdicts(done) == ["purge"]
    assert "not in the fleet" in done.outcomes[0].decision.reason
    assert bench.index.entries_in("pod-a") == 0


def test_a_list_of_one_namespace_says_nothing_of_a_pod_of_another(bench: Bench) -> None:
    listed = FleetSnapshot((), namespace="team-a")
    assert bench.round(pods=[], whole=True, speaks_of=listed.speaks_of).outcomes == ()
    assert bench.index.entries_in("pod-a") == 4
    assert listed.speaks_of("team-a/pod-a")
    assert not listed.speaks_of("team-b/pod-a")


def test_a_plan_that_would_purge_too_much_is_refused_whole(bench: Bench) -> None:
    bench.post("/sleep", level=1)
    with pytest.raises(KvctlError, match="4 of 4 entries, more than 50 %"):
        bench.round(max_purge=50.0)
    assert bench.index.entries_in("pod-a") == 4
    assert bench.round(max_purge=100.0).purged == 4


def test_two_reconcilers_at_once_do_no_harm(bench: Bench, tmp_path: Path) -> None:
    bench.post("/sleep", level=1)
    with SqliteIndex(tmp_path / "index.sqlite") as other:
        one = Reconciler(
            bench.index, bench.index, [bench.known], ReconcileOptions(), whole_fleet=False
        )
        two = Reconciler(other, other, [bench.known], ReconcileOptions(), whole_fleet=False)
        first, second = one.plan(), two.plan()
        assert one.apply(*first).purged == 4
        assert two.apply(*second).purged == 0
    assert bench.index.entries_in("pod-a") == 0


def test_what_is_remembered_in_another_form_is_forgotten(bench: Bench) -> None:
    for text in ("junk", "[1]", '[{"pod": "pod-a"}]', "null"):
        bench.index.remember("reconcile", text)
        assert verdicts(bench.round()) == ["keep"]
