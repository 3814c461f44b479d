"""A simulated engine's behaviour, through its real ports."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import msgpack
import pytest
import requests
import zmq
from simtools import complete, get, give_up, metric, post, replayed, types

from kvctl.errors import KvctlError, UsageError
from kvctl.events import decode_batch
from kvctl.sim import SimConfig, SimPod

PROMPT = list(range(1, 65))
CLEAR, STORE = "AllBlocksCleared", "BlockStored"


@pytest.fixture
def pod() -> Iterator[SimPod]:
    with SimPod(SimConfig(blocks=32, block_size=16)) as pod:
        yield pod


def state(pod: SimPod) -> tuple[float | None, ...]:
    return tuple(
        metric(pod, "vllm:engine_sleep_state", sleep_state=row)
        for row in ("awake", "weights_offloaded", "discard_all")
    )


def cached(pod: SimPod) -> int:
    return len(get(pod, "/sim/cache").json()["ranks"][0]["blocks"])


def test_a_prompt_sent_again_hits_all_but_its_last_block(pod: SimPod) -> None:
    assert complete(pod, PROMPT)["prompt_tokens_details"]["cached_tokens"] == 0
    assert complete(pod, PROMPT)["prompt_tokens_details"]["cached_tokens"] == 48
    assert complete(pod, [*PROMPT, 5])["prompt_tokens_details"]["cached_tokens"] == 64
    assert metric(pod, "vllm:prefix_cache_queries_total") == 193
    assert metric(pod, "vllm:prefix_cache_hits_total") == 112


def test_a_reset_of_an_idle_engine_is_told_with_its_next_step(pod: SimPod) -> None:
    complete(pod, PROMPT)
    post(pod, "/reset_prefix_cache")
    assert types(replayed(pod)) == [[STORE]]
    assert cached(pod) == 0
    complete(pod, PROMPT)
    assert types(replayed(pod)) == [[STORE], [CLEAR, STORE]]


@pytest.mark.parametrize(
    ("calls", "gauge", "wiped", "sleeping"),
    [
        ([], (1, 0, 0), False, False),
        ([("/sleep", {"level": 1})], (0, 1, 0), True, True),
        ([("/sleep", {"level": 2})], (0, 0, 1), True, True),
        ([("/sleep", {"level": 0})], (0, 0, 0), False, True),
        ([("/sleep", {"level": 0}), ("/release_kv_cache_memory", {})], (0, 0, 0), True, True),
        ([("/pause", {})], (1, 0, 0), True, True),
        ([("/pause", {"clear_cache": "false"})], (1, 0, 0), False, True),
        ([("/sleep", {"level": 1}), ("/wake_up", {"tags": "weights"})], (0, 1, 0), True, True),
        ([("/sleep", {"level": 1}), ("/wake_up", {})], (1, 0, 0), True, False),
        ([("/sleep", {"level": 0}), ("/wake_up", {})], (1, 0, 0), False, False),
        ([("/pause", {}), ("/resume", {})], (1, 0, 0), True, False),
        ([("/sleep", {"level": 0}), ("/resume", {})], (0, 0, 0), False, False),
        ([("/sleep", {"level": 1}), ("/sleep", {"level": 0})], (0, 0, 0), True, True),
    ],
)
def test_every_state_shows_as_the_real_engines_does(
    pod: SimPod, calls: list, gauge: tuple, wiped: bool, sleeping: bool
) -> None:
    complete(pod, PROMPT)
    for path, params in calls:
        assert post(pod, path, **params).status_code == 200
    assert state(pod) == gauge
    assert (cached(pod) == 0) == wiped
    assert get(pod, "/is_sleeping").json() == {"is_sleeping": sleeping}
    assert get(pod, "/health").status_code == 200
    assert types(replayed(pod)) == [[STORE]]


def test_operations_are_counted_from_the_first_on(pod: SimPod) -> None:
    name = "vllm:sleep_mode_operation_duration_seconds_count"
    assert metric(pod, name, operation="sleep") is None
    post(pod, "/sleep", level=1)
    post(pod, "/wake_up")
    post(pod, "/release_kv_cache_memory")
    assert metric(pod, name, operation="sleep") == 1
    assert metric(pod, name, operation="wake") == 1
    assert metric(pod, name, operation="release_kv_cache_memory") == 1


def test_a_release_without_a_pause_is_refused_but_wipes(pod: SimPod) -> None:
    complete(pod, PROMPT)
    assert post(pod, "/release_kv_cache_memory").status_code == 500
    assert cached(pod) == 0


def test_a_request_to_a_sleeping_engine_waits_until_it_wakes(pod: SimPod) -> None:
    post(pod, "/sleep")
    answers: list[dict] = []
    thread = threading.Thread(target=lambda: answers.append(complete(pod, PROMPT)))
    thread.start()
    deadline = time.monotonic() + 10
    while metric(pod, "vllm:num_requests_waiting") != 1:
        assert time.monotonic() < deadline
    assert answers == []
    post(pod, "/wake_up")
    thread.join(10)
    assert answers[0]["prompt_tokens"] == 64


def test_a_request_given_up_asleep_brings_the_clear_alone_after_the_wake(pod: SimPod) -> None:
    complete(pod, PROMPT)
    post(pod, "/sleep")
    give_up(pod, PROMPT)
    assert types(replayed(pod)) == [[STORE]]
    post(pod, "/wake_up")
    assert types(replayed(pod)) == [[STORE], [CLEAR]]


def test_a_reset_while_requests_run_is_refused_unless_they_are_preempted(pod: SimPod) -> None:
    post(pod, "/sim/hold")
    thread = threading.Thread(target=complete, args=(pod, PROMPT, 4))
    thread.start()
    deadline = time.monotonic() + 10
    while metric(pod, "vllm:num_requests_running") != 1:
        assert time.monotonic() < deadline
    assert post(pod, "/reset_prefix_cache").json() == {"success": False}
    assert types(replayed(pod)) == [[STORE]]
    assert post(pod, "/reset_prefix_cache", reset_running_requests="true").json() == {
        "success": True
    }
    post(pod, "/sim/release")
    thread.join(10)
    assert types(replayed(pod))[1][0] == CLEAR
    assert cached(pod) == 4


def test_a_sleep_aborts_what_runs(pod: SimPod) -> None:
    post(pod, "/sim/hold")
    answers: list[requests.Response] = []

    def ask() -> None:
        body = {"model": "tiny", "prompt": PROMPT, "max_tokens": 50}
        answers.append(requests.post(pod.api + "/v1/completions", json=body, timeout=30))

    thread = threading.Thread(target=ask)
    thread.start()
    deadline = time.monotonic() + 10
    while metric(pod, "vllm:num_requests_running") != 1:
        assert time.monotonic() < deadline
    post(pod, "/sleep", level=1)
    thread.join(10)
    assert answers[0].json()["choices"][0]["finish_reason"] == "abort"


def test_a_prompt_larger_than_the_pool_is_refused(pod: SimPod) -> None:
    with pytest.raises(AssertionError, match="more blocks than are free"):
        complete(pod, list(range(2000)))
    assert cached(pod) == 0


def test_text_prompts_are_tokens_too(pod: SimPod) -> None:
    text = "all work and no play " * 4
    complete(pod, text)
    assert complete(pod, text)["prompt_tokens_details"]["cached_tokens"] > 0


def test_a_lora_keeps_its_blocks_apart() -> None:
    with SimPod(SimConfig(loras=("ad1",))) as pod:
        complete(pod, PROMPT)
        usage = complete(pod, PROMPT, model="ad1")
        assert usage["prompt_tokens_details"]["cached_tokens"] == 0
        event = replayed(pod)[1][1][1][0]
        assert event["lora_name"] == "ad1"
        assert event["extra_keys"] == [["ad1"]] * 4


@pytest.mark.parametrize(
    ("wire", "reset", "sleep", "gauge"),
    [
        ("0.9.1", "", "", False),
        ("0.18", "", "", True),
        ("0.24", "", "", True),
        ("0.26", '{"success": true}', "", True),
        ("0.32", '{"success": true}', '{"status": "sleeping", "level": 1}', True),
    ],
)
def test_answers_metrics_and_events_are_of_its_version(
    wire: str, reset: str, sleep: str, gauge: bool
) -> None:
    with SimPod(SimConfig(wire=wire)) as pod:
        complete(pod, PROMPT)
        assert post(pod, "/reset_prefix_cache").text == reset
        assert post(pod, "/sleep").text == sleep
        assert (state(pod)[0] is not None) == gauge
        events = replayed(pod)[0][1][1]
        assert isinstance(events[0], dict) == (wire >= "0.24" and wire != "0.9.1")
        assert decode_batch(msgpack.packb(replayed(pod)[0][1])).events[0].token_ids == PROMPT  # type: ignore[union-attr]
        newer = wire == "0.32"
        assert get(pod, "/is_paused").status_code == (200 if newer else 404)


def test_bytes_or_ints_name_the_blocks() -> None:
    with SimPod(SimConfig(int_hashes=False)) as pod:
        complete(pod, PROMPT)
        hashes = replayed(pod)[0][1][1][0]["block_hashes"]
        assert {len(each) for each in hashes} == {32}


def test_bad_calls_get_the_engines_answers(pod: SimPod) -> None:
    assert get(pod, "/sleep").status_code == 405
    assert post(pod, "/health").status_code == 405
    assert get(pod, "/nothing").status_code == 404
    assert post(pod, "/sleep", level=7).json()["error"]["message"] == "Invalid sleep level: 7"
    assert post(pod, "/sleep", level="x").status_code == 400
    assert post(pod, "/wake_up", tags="nonsense").json()["status"] == "sleeping"
    assert "there are /sim/cache" in post(pod, "/sim/nothing").json()["error"]["message"]
    bad = requests.post(pod.api + "/v1/completions", data=b"junk", timeout=10)
    assert bad.status_code == 400
    bad = requests.post(pod.api + "/v1/completions", json={"prompt": {}}, timeout=10)
    assert bad.status_code == 400
    bad = requests.post(pod.api + "/v1/completions", json={"model": "x", "prompt": "y"}, timeout=10)
    assert bad.status_code == 404


def test_without_dev_mode_there_are_no_control_endpoints() -> None:
    with SimPod(SimConfig(dev_mode=False)) as pod:
        assert post(pod, "/reset_prefix_cache").status_code == 404
        assert post(pod, "/sleep").status_code == 404
        assert get(pod, "/metrics").status_code == 200


def test_a_key_guards_v1_only() -> None:
    with SimPod(SimConfig(api_key="secret")) as pod:
        assert get(pod, "/v1/models").status_code == 401
        assert post(pod, "/reset_prefix_cache").status_code == 200
        headers = {"Authorization": "Bearer secret"}
        assert requests.get(pod.api + "/v1/models", headers=headers, timeout=10).ok


def subscriber(pod: SimPod) -> zmq.Socket:
    socket = zmq.Context.instance().socket(zmq.SUB)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SUBSCRIBE, b"")
    socket.connect(pod.events[0])
    deadline = time.monotonic() + 10
    probe = 0
    while not socket.poll(50):  # a SUB has no way to know that it is subscribed
        assert time.monotonic() < deadline
        complete(pod, [10_000 + probe * 16 + at for at in range(16)])
        probe += 1
    while socket.poll(200):
        socket.recv_multipart()
    return socket


@pytest.mark.parametrize("keep", [True, False])
def test_a_dropped_batch_is_lost_on_the_way(pod: SimPod, keep: bool) -> None:
    with subscriber(pod) as socket:
        before = len(replayed(pod))
        post(pod, "/sim/drop", batches=1, keep_in_buffer=str(keep).lower())
        complete(pod, PROMPT)
        complete(pod, [7] * 16)
        assert socket.poll(10_000)
        _topic, seq, _payload = socket.recv_multipart()
        assert int.from_bytes(seq, "big") == before + 1
        kept = [each for each, _payload in replayed(pod)]
        assert (before in kept) == keep


def test_flush_modes_change_when_clears_are_told(pod: SimPod) -> None:
    complete(pod, PROMPT)
    post(pod, "/sim/flush", mode="immediate")
    post(pod, "/reset_prefix_cache")
    assert types(replayed(pod)) == [[STORE], [CLEAR]]
    post(pod, "/sim/flush", mode="never-clear")
    post(pod, "/reset_prefix_cache")
    complete(pod, PROMPT)
    assert types(replayed(pod)) == [[STORE], [CLEAR], [STORE]]


def test_out_of_memory_wipes_without_a_word_until_the_next_step(pod: SimPod) -> None:
    complete(pod, PROMPT)
    post(pod, "/sim/oom-reset")
    assert cached(pod) == 0
    assert types(replayed(pod)) == [[STORE]]
    complete(pod, [3])
    assert types(replayed(pod)) == [[STORE], [CLEAR]]


def test_a_restart_is_a_new_life_on_the_same_ports(pod: SimPod) -> None:
    complete(pod, PROMPT)
    began, ports = metric(pod, "process_start_time_seconds"), (pod.events, pod.replay)
    post(pod, "/sim/restart")
    assert (pod.events, pod.replay) == ports
    assert metric(pod, "process_start_time_seconds") > began
    assert replayed(pod) == []
    complete(pod, PROMPT)
    assert [seq for seq, _payload in replayed(pod)] == [0]


def test_a_dead_engines_ports_are_closed(pod: SimPod) -> None:
    post(pod, "/sim/die")
    deadline = time.monotonic() + 10
    while True:
        try:
            requests.get(pod.api + "/health", timeout=1)
        except requests.RequestException:
            break
        assert time.monotonic() < deadline


def test_a_slow_engine_answers_late(pod: SimPod) -> None:
    post(pod, "/sim/slow", seconds=5)
    with pytest.raises(requests.Timeout):
        requests.get(pod.api + "/health", timeout=0.2)


def test_fixed_ports_are_taken_and_refused_when_in_use() -> None:
    config = SimConfig().at_ports(23470)
    with SimPod(config) as pod:
        assert pod.api == "http://127.0.0.1:23470"
        assert pod.events == ["tcp://127.0.0.1:23471"]
        with pytest.raises(KvctlError, match="cannot bind"):
            SimPod(config)


@pytest.mark.parametrize("bad", [{"blocks": 1}, {"block_size": 0}, {"ranks": 9}, {"wire": "x"}])
def test_impossible_engines_are_refused(bad: dict) -> None:
    with pytest.raises(UsageError):
        SimConfig(**bad)


def test_nothing_is_left_running_behind_a_pod() -> None:
    before = threading.active_count()
    with SimPod(SimConfig(ranks=2)) as pod:
        complete(pod, PROMPT)
    deadline = time.monotonic() + 10
    while threading.active_count() > before:
        assert time.monotonic() < deadline
        time.sleep(0.01)
