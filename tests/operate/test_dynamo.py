"""A real Dynamo indexer, fed by simulated engines: read, matched, purged, reconciled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from driving import PROMPT, complete, drive, fleet_pod
from dynamos import Indexer

from kvctl.index import IndexStoreError, Prompt
from kvctl.index.dynamo import DynamoIndex
from kvctl.operate.indexes import IndexOptions, open_purgeable
from kvctl.operate.memory import FileMemory
from kvctl.operate.podnames import pod_names
from kvctl.operate.reconcile import ReconcileOptions, Reconciler
from kvctl.operate.target import StoredTarget
from kvctl.operate.verdicts import Verdict
from kvctl.sim import SimConfig, SimPod

pytestmark = pytest.mark.dynamo


@pytest.fixture
def pod(dynamo_indexer: Indexer) -> Iterator[SimPod]:
    """A pod that the indexer listens to, with four blocks."""
    with SimPod(SimConfig()) as pod:
        dynamo_indexer.register(7, pod.events[0], pod.replay[0])
        warm(dynamo_indexer, pod, 4)
        yield pod


def warm(indexer: Indexer, pod: SimPod, blocks: int) -> None:
    """Until the indexer has subscribed, what the pod says is lost; its replay fills the gap."""
    for _ in range(50):
        complete(pod)
        if indexer.entries() == blocks:
            return
        # Make it publish again: the clear and the same blocks.
        requests.post(pod.api + "/reset_prefix_cache", timeout=5).raise_for_status()
    indexer.wait_for(blocks)


@pytest.fixture
def index(dynamo_indexer: Indexer, pod: SimPod) -> Iterator[DynamoIndex]:
    with open_purgeable(dynamo_indexer.url, IndexOptions(pods=[fleet_pod(pod)])) as index:
        assert isinstance(index, DynamoIndex)
        yield index


def test_what_it_holds_is_read_under_the_pods_name(index: DynamoIndex, pod: SimPod) -> None:
    (stream,) = index.summary().streams
    assert (stream.pod, stream.rank, stream.model, stream.media) == (
        "pod-a", 0, "tiny", {"GPU": 4},
    )  # fmt: skip
    truth = {block_hash for block_hash, _copies in pod.engine.cache()[0]["blocks"]}
    assert {entry.block_hash for entry in index.entries("pod-a")} == truth
    (fact,) = index.facts()
    assert (fact.entries, fact.block_size, fact.newest) == (4, 16, None)


def test_a_prompt_is_matched_by_the_indexer_itself(index: DynamoIndex) -> None:
    match = index.match(Prompt(tuple(PROMPT)))["pod-a"]
    assert (match.blocks, match.prompt_blocks, match.rank) == (4, 4, 0)
    assert index.match(Prompt(tuple(PROMPT), "tiny"))["pod-a"].blocks == 4
    assert index.match(Prompt(tuple(PROMPT), "another")) == {}
    assert index.match(Prompt((1, 2, 3)))["pod-a"].blocks == 0


def test_a_worker_of_no_known_pod_goes_by_its_number(dynamo_indexer: Indexer, pod: SimPod) -> None:
    with DynamoIndex(dynamo_indexer.url) as index:
        assert [stream.pod for stream in index.summary().streams] == ["dynamo/7"]
    with DynamoIndex(dynamo_indexer.url, names={"7": "seven"}) as index:
        assert [stream.pod for stream in index.summary().streams] == ["seven"]


def test_a_purge_takes_one_pod_and_lets_it_tell_anew(
    dynamo_indexer: Indexer, index: DynamoIndex, pod: SimPod
) -> None:
    requests.post(pod.api + "/sleep", timeout=5).raise_for_status()
    assert index.purge("pod-a") == 4
    assert index.remarks() == []
    assert dynamo_indexer.entries() == 0
    assert index.summary().streams[0].entries == 0
    assert index.purge("pod-a") == 0
    requests.post(pod.api + "/wake_up", timeout=5).raise_for_status()
    # The first batch after it is a gap to Dynamo: the replay brings the clear with the rest.
    complete(pod, list(range(700, 732)))
    dynamo_indexer.wait_for(2)


def test_without_the_fleet_the_replay_endpoint_cannot_be_brought_back(
    dynamo_indexer: Indexer, pod: SimPod
) -> None:
    with DynamoIndex(dynamo_indexer.url) as index:
        assert index.purge("dynamo/7") == 4
        assert "without a replay endpoint" in index.remarks()[0]


def test_no_time_can_be_asked_for(index: DynamoIndex) -> None:
    with pytest.raises(IndexStoreError, match="tells no times"):
        index.purge("pod-a", before=1.0)


def test_reconcile_purges_the_sleeping_pod_only(
    dynamo_indexer: Indexer, pod: SimPod, tmp_path: Path
) -> None:
    with SimPod(SimConfig(name="pod-b")) as other:
        dynamo_indexer.register(8, other.events[0], other.replay[0])
        warm(dynamo_indexer, other, 8)
        pods = [fleet_pod(pod), fleet_pod(other)]
        requests.post(pod.api + "/sleep", timeout=5).raise_for_status()
        with open_purgeable(dynamo_indexer.url, IndexOptions(pods=pods)) as index:
            done = Reconciler(
                index, FileMemory("x", tmp_path), pods, ReconcileOptions(), whole_fleet=True
            ).run()
        assert [each.decision.verdict.value for each in done.outcomes] == ["purge", "keep"]
        assert done.purged == 4
        assert dynamo_indexer.entries() == 4


def test_another_block_size_is_named(dynamo_indexer: Indexer, tmp_path: Path) -> None:
    with SimPod(SimConfig()) as pod:
        dynamo_indexer.register(9, pod.events[0], pod.replay[0], block_size=64)
        known = fleet_pod(pod)
        with open_purgeable(dynamo_indexer.url, IndexOptions(pods=[known])) as index:
            done = Reconciler(
                index, FileMemory("x", tmp_path), [known], ReconcileOptions(), whole_fleet=False
            ).run()
        reason = done.outcomes[0].decision.reason
        assert "blocks of 64 tokens, the engine 16: it takes nothing in" in reason


def test_sleep_purges_it_at_once(dynamo_indexer: Indexer, index: DynamoIndex, pod: SimPod) -> None:
    target = StoredTarget(index, "pod-a", "dynamo")
    report = drive(pod, target=target, action="sleep", purge=True)
    assert (report.verdict, report.entries_before) == (Verdict.PURGED, 4)
    assert dynamo_indexer.entries() == 0


def test_names_come_from_the_fleet(pod: SimPod) -> None:
    assert pod_names([fleet_pod(pod)])[pod.events[0]] == "pod-a"
