"""The doctor's checks, on simulated engines that have what is looked for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests
from driving import complete, fault, fleet_pod
from recordings import wire_batches

from kvctl.events import Batch, BlockStored, decode_record
from kvctl.fleet import Pod, parse_pod
from kvctl.operate.doctor import Check, Status, diagnose
from kvctl.operate.examine import PodSeen, StreamSeen, examine
from kvctl.operate.hashcheck import HashCheck
from kvctl.sim import SimConfig, SimPod
from kvctl.stream import StreamStatus

PROMPTS = [list(range(1, 65)), list(range(1, 33)) + list(range(500, 564))]


@pytest.fixture
def pod() -> Iterator[SimPod]:
    with SimPod(SimConfig()) as pod:
        for prompt in PROMPTS:
            complete(pod, prompt)
        yield pod


def checks(*pods: SimPod | Pod, timeout: float = 10.0) -> dict[tuple[str | None, str], Check]:
    known = [pod if isinstance(pod, Pod) else fleet_pod(pod) for pod in pods]
    found = diagnose(examine(known, api_key=None, timeout=timeout))
    return {(check.pod, check.name): check for check in found}


def test_a_pod_that_is_well_passes_all_but_aibrixs_decoder(pod: SimPod) -> None:
    found = checks(pod)
    assert {name for (_pod, name), each in found.items() if each.status is Status.WARN} == {
        "aibrix"
    }
    assert not [each for each in found.values() if each.status in (Status.FAIL, Status.SKIP)]
    assert found["pod-a", "hashes"].detail == "8 blocks follow from their tokens"
    assert found["pod-a", "capacity"].detail == "8 of 63 blocks"
    assert found["pod-a", "replay"].detail == "it answers"


def test_older_engines_events_are_what_aibrix_decodes() -> None:
    with SimPod(SimConfig(wire="0.18")) as pod:
        complete(pod)
        assert checks(pod)["pod-a", "aibrix"].status is Status.PASS


def test_an_engine_outside_dev_mode_cannot_be_controlled() -> None:
    with SimPod(SimConfig(dev_mode=False)) as pod:
        complete(pod)
        check = checks(pod)["pod-a", "control"]
        assert check.status is Status.WARN
        assert "VLLM_SERVER_DEV_MODE=1" in check.remedy


def test_a_halted_engine_fails(pod: SimPod) -> None:
    requests.post(pod.api + "/pause", timeout=5).raise_for_status()
    check = checks(pod)["pod-a", "state"]
    assert check.status is Status.FAIL
    assert "its gauge says awake" in check.detail


def test_a_dead_pod_is_named_in_every_check_it_fails() -> None:
    with SimPod(SimConfig()) as pod:
        known = fleet_pod(pod)
    found = checks(known, timeout=1.0)
    assert found["pod-a", "api"].status is Status.FAIL
    assert found["pod-a", "events"].status is Status.FAIL
    assert "enable_kv_cache_events" in found["pod-a", "events"].remedy


def test_a_silent_engine_and_one_without_replay_are_warned_of() -> None:
    with SimPod(SimConfig()) as pod:
        found = checks(fleet_pod(pod, replay="none"), timeout=2.0)
        assert found["pod-a", "events"].status is Status.WARN
        assert found["pod-a", "replay"].status is Status.WARN


def test_a_stalled_replay_fails(pod: SimPod) -> None:
    fault(pod, "stall")
    found = checks(pod, timeout=9.0)
    assert found["pod-a", "replay"].status is Status.FAIL


def test_lost_removes_show_as_entries_above_capacity() -> None:
    with SimPod(SimConfig(blocks=8)) as pod:
        complete(pod, list(range(16 * 5)))
        fault(pod, "drop", batches=1, keep_in_buffer=0)
        complete(pod, list(range(1000, 1000 + 16 * 5)))
        complete(pod, list(range(2000, 2000 + 16 * 2)))
        check = checks(pod)["pod-a", "capacity"]
        assert check.status in (Status.PASS, Status.FAIL)
        held = int(check.detail.split()[0])
        assert (held > 7) == (check.status is Status.FAIL)


def test_the_fleets_block_sizes_and_hashes_are_compared(pod: SimPod) -> None:
    with (
        SimPod(SimConfig(name="pod-b")) as same,
        SimPod(SimConfig(name="pod-c", block_size=32)) as c,
    ):
        complete(same, PROMPTS[0])
        complete(c, PROMPTS[0])
        alike = checks(pod, same)
        assert alike[None, "block sizes"].status is Status.PASS
        assert alike[None, "block sizes"].detail == "all have 16"
        assert alike[None, "hashes agree"].detail == "on all 4 shared blocks"
        differing = checks(pod, c)
        assert differing[None, "block sizes"].status is Status.FAIL
        assert "pod-a 16; pod-c 32" in differing[None, "block sizes"].detail
        assert differing[None, "hashes agree"].status is Status.SKIP
    with SimPod(SimConfig(name="pod-d", int_hashes=False)) as other:
        complete(other, PROMPTS[0])
        assert checks(pod, other)[None, "hashes agree"].status is Status.WARN


def test_of_two_ranks_each_stream_is_looked_at() -> None:
    with SimPod(SimConfig(name="pod-dp", ranks=2)) as pod:
        for rank in (0, 1):
            complete(pod, PROMPTS[0], rank=rank)
        found = diagnose(examine([fleet_pod(pod)], api_key=None, timeout=10.0))
        assert [each.rank for each in found if each.name == "events"] == [0, 1]


@pytest.mark.parametrize("name", ["warm", "evict", "salt", "hybrid"])
def test_every_hash_of_a_recording_of_vllm_0_32_follows_from_its_tokens(name: str) -> None:
    check = HashCheck()
    for wire in wire_batches(name):
        record = decode_record(wire)
        assert isinstance(record, Batch)
        for event in record.events.events:
            if isinstance(event, BlockStored):
                check.take(event)
    assert check.checked > 0
    assert check.wrong == 0


def test_a_loras_blocks_and_other_algorithms_are_not_judged() -> None:
    check = HashCheck()
    for wire in wire_batches("lora"):  # xxhash, 16 bytes
        record = decode_record(wire)
        assert isinstance(record, Batch)
        for event in record.events.events:
            if isinstance(event, BlockStored):
                check.take(event)
    assert (check.checked, check.wrong) == (0, 0)
    check.take(BlockStored([1], None, [1, 2], 2, lora_name="ad1"))
    assert check.checked == 0


@pytest.mark.parametrize(
    ("batches", "seconds", "status"),
    [(600, 3600.0, Status.PASS), (600, 10.0, Status.PASS), (90_000, 3600.0, Status.WARN)],
)
def test_the_replays_reach_is_told_by_the_rate(
    batches: int, seconds: float, status: Status
) -> None:
    status_of = StreamStatus(
        "a", 0, "tcp://x", True, "ok", batches - 1, batches, 0, 0, 0, 0, 0, None
    )
    stream = StreamSeen(status_of)
    stream.first_seq, stream.last_seq = 0, batches - 1
    stream.first_ts, stream.last_ts = 1000.0, 1000.0 + seconds
    seen = PodSeen(parse_pod("name=a,host=10.0.0.7"), streams={0: stream})
    (check,) = [each for each in diagnose([seen]) if each.name == "replay"]
    assert check.status is status


def test_a_changed_token_is_found() -> None:
    check = HashCheck()
    for wire in wire_batches("warm"):
        record = decode_record(wire)
        assert isinstance(record, Batch)
        for event in record.events.events:
            if isinstance(event, BlockStored) and event.token_ids:
                event.token_ids[-1] += 1
                check.take(event)
    assert check.wrong > 0
