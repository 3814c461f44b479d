"""Reset, sleep and wake with verification, against a simulated engine's real ports."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
import requests
from driving import complete, drive, fault, fleet_pod, spec, step

from kvctl.fleet import parse_pod
from kvctl.operate.verdicts import Verdict
from kvctl.sim import SimConfig, SimPod


@pytest.fixture
def pod() -> Iterator[SimPod]:
    with SimPod(SimConfig()) as pod:
        complete(pod)
        yield pod


@pytest.fixture
def later(pod: SimPod) -> Iterator[Callable[..., None]]:
    """Calls something in a moment; the test ends when it is done, and before the pod does."""
    timers: list[threading.Timer] = []

    def start(delay: float, call: Callable[..., object], *arguments: object) -> None:
        timers.append(threading.Timer(delay, call, arguments))
        timers[-1].start()

    yield start
    for timer in timers:
        timer.join()


def test_a_reset_of_an_idle_engine_is_stale_until_it_steps(pod: SimPod) -> None:
    report = drive(pod, action="reset")
    assert report.verdict is Verdict.STALE
    assert (report.entries_before, report.entries_after, report.exit_code) == (4, 4, 3)
    assert step(report, "call").ok is True
    assert "has not stepped" in step(report, "clear").detail


def test_a_nudge_makes_the_engine_step_and_verifies_the_reset(pod: SimPod) -> None:
    report = drive(pod, action="reset", nudge=True)
    assert report.verdict is Verdict.VERIFIED
    assert (report.entries_before, report.entries_after, report.exit_code) == (4, 0, 0)
    assert [each.name for each in report.steps] == [
        "state", "index", "call", "clear", "nudge", "clear", "check",
    ]  # fmt: skip
    assert [each.ok for each in report.steps if each.name == "clear"] == [False, True]


def test_traffic_is_as_good_as_a_nudge(pod: SimPod, later) -> None:
    def traffic() -> None:
        later(0.3, complete, pod, [900, 901])

    report = drive(pod, traffic, action="reset", timeout=10.0)
    assert report.verdict is Verdict.VERIFIED
    assert not [each for each in report.steps if each.name == "nudge"]


def test_a_purge_removes_what_a_missing_clear_leaves(pod: SimPod) -> None:
    report = drive(pod, action="reset", purge=True)
    assert report.verdict is Verdict.PURGED
    assert (report.entries_before, report.entries_after, report.exit_code) == (4, 0, 0)
    assert "4 entries removed" in step(report, "purge").detail


def test_a_probe_proves_the_wipe_by_the_engines_own_counters(pod: SimPod) -> None:
    report = drive(pod, action="reset", probe=True, nudge=True)
    assert report.verdict is Verdict.VERIFIED
    assert step(report, "probe before").ok is True
    assert step(report, "probe after").ok is True
    assert step(report, "probe after").detail.startswith("0 of 49 tokens")


def test_a_probe_shows_a_reset_that_did_not_happen() -> None:
    """An old engine answers an empty 200 whether or not it reset its cache."""
    with SimPod(SimConfig(wire="0.18")) as pod:
        complete(pod)
        fault(pod, "hold")
        running = threading.Thread(target=complete, args=(pod,), kwargs={"max_tokens": 9})
        running.start()
        while not _running(pod):
            time.sleep(0.01)
        report = drive(pod, action="reset", probe=True)
        fault(pod, "release")
        running.join()
    assert step(report, "call").ok is None
    assert "does not tell" in step(report, "call").detail
    assert step(report, "probe after").ok is False
    assert report.verdict is Verdict.FAILED
    assert "nothing may be purged" in step(report, "check").detail


def test_an_old_engines_word_is_no_reason_to_purge() -> None:
    with SimPod(SimConfig(wire="0.18")) as pod:
        complete(pod)
        unproven = drive(pod, action="reset", purge=True)
        assert (unproven.verdict, unproven.entries_after) == (Verdict.STALE, 4)
        assert step(unproven, "purge").ok is None
        fault(pod, "flush", mode="never-clear")
        proven = drive(pod, action="reset", purge=True, probe=True)
        assert proven.verdict is Verdict.PURGED


def _running(pod: SimPod) -> bool:
    page = requests.get(pod.api + "/metrics", timeout=10).text
    return any(
        line.startswith("vllm:num_requests_running") and line.endswith(" 1.0")
        for line in page.splitlines()
    )


def test_a_reset_refused_because_requests_run_names_the_way_out(pod: SimPod) -> None:
    fault(pod, "hold")
    running = threading.Thread(target=complete, args=(pod,), kwargs={"max_tokens": 9})
    running.start()
    while not _running(pod):
        time.sleep(0.01)
    refused = drive(pod, action="reset")
    forced = drive(pod, action="reset", reset_running=True, purge=True)
    fault(pod, "release")
    running.join()
    assert (refused.verdict, refused.exit_code) == (Verdict.FAILED, 1)
    assert "--reset-running" in step(refused, "call").detail
    assert forced.verdict in (Verdict.PURGED, Verdict.VERIFIED)


@pytest.mark.parametrize("level", [1, 2])
def test_a_sleep_leaves_stale_entries_unless_its_driver_purges(pod: SimPod, level: int) -> None:
    report = drive(pod, action="sleep", level=level)
    assert (report.verdict, report.entries_after) == (Verdict.STALE, 4)
    assert "before it wakes" in step(report, "clear").detail
    woken = drive(pod, action="wake", nudge=True)
    assert (woken.verdict, woken.entries_before, woken.entries_after) == (Verdict.AWAKE, 4, 0)
    complete(pod)
    purged = drive(pod, action="sleep", level=level, purge=True)
    assert (purged.verdict, purged.entries_before) == (Verdict.PURGED, 4)


def test_sleep_level_0_claims_and_purges_nothing(pod: SimPod) -> None:
    report = drive(pod, action="sleep", level=0, purge=True, probe=True)
    assert report.verdict is Verdict.KEPT
    assert (report.entries_before, report.entries_after, report.exit_code) == (4, 4, 0)
    woken = drive(pod, action="wake", purge=True)
    assert (woken.verdict, woken.entries_after) == (Verdict.AWAKE, 4)
    assert complete(pod)["prompt_tokens_details"]["cached_tokens"] == 48


def test_a_wake_without_a_step_says_what_is_still_stale(pod: SimPod) -> None:
    drive(pod, action="sleep")
    report = drive(pod, action="wake")
    assert (report.verdict, report.exit_code) == (Verdict.STALE, 3)


def test_a_wake_of_a_pod_that_is_awake_touches_nothing(pod: SimPod) -> None:
    report = drive(pod, action="wake", purge=True)
    assert (report.verdict, report.entries_after) == (Verdict.AWAKE, 4)


def test_a_nudge_is_not_sent_to_a_sleeping_engine(pod: SimPod) -> None:
    report = drive(pod, action="sleep", nudge=True)
    assert step(report, "nudge").ok is None


def test_what_is_stored_since_the_call_is_neither_stale_nor_purged(pod: SimPod, later) -> None:
    fault(pod, "flush", mode="never-clear")

    def traffic() -> None:
        later(0.2, complete, pod, list(range(500, 532)))

    report = drive(pod, traffic, action="reset", timeout=1.5, purge=True)
    assert (report.verdict, report.entries_before) == (Verdict.PURGED, 4)
    assert "4 entries removed" in step(report, "purge").detail


def test_every_rank_must_report_its_clear() -> None:
    with SimPod(SimConfig(ranks=2)) as pod:
        for rank in (0, 1):
            complete(pod, rank=rank)
        report = drive(pod, action="reset", nudge=True)
        assert report.verdict is Verdict.VERIFIED
        assert report.entries_before == 8
        for rank in (0, 1):
            complete(pod, rank=rank)

        timer = threading.Timer(0.2, complete, [pod, [5]], {"rank": 0})
        partly = drive(pod, timer.start, action="reset", timeout=1.0)
        timer.join()
        assert (partly.verdict, partly.entries_after) == (Verdict.STALE, 4)
        assert "rank 1 has not stepped" in step(partly, "clear").detail


def test_a_restart_behind_the_call_counts_as_a_wipe(pod: SimPod, later) -> None:
    def restart() -> None:
        later(0.2, fault, pod, "restart")
        later(0.6, complete, pod, [5] * 20)

    report = drive(pod, restart, action="reset", timeout=8.0)
    assert (report.verdict, report.entries_after) == (Verdict.VERIFIED, 0)


def test_an_engine_that_dies_behind_the_call_is_not_called_verified(pod: SimPod, later) -> None:
    def die() -> None:
        later(0.2, pod.close)

    report = drive(pod, die, action="reset", timeout=1.5, nudge=True)
    assert report.verdict is Verdict.STALE
    assert step(report, "nudge").ok is False


def test_an_engine_that_is_not_there_fails(pod: SimPod) -> None:
    known = fleet_pod(pod)
    pod.close()
    report = drive(pod, known=known, action="reset", settle_timeout=0.5)
    assert (report.verdict, report.exit_code) == (Verdict.FAILED, 1)
    assert "refuses the connection" in step(report, "call").detail


def test_a_call_that_got_no_answer_may_have_happened(pod: SimPod) -> None:
    def slow() -> None:
        fault(pod, "slow", seconds=2)

    report = drive(pod, slow, action="reset", call_timeout=0.3)
    assert report.verdict is Verdict.FAILED
    assert "it may have happened all the same" in step(report, "call").detail


def test_without_its_stream_a_reset_is_not_verified(pod: SimPod) -> None:
    known = parse_pod(spec(pod, events="tcp://127.0.0.1:9", replay="none"))
    report = drive(pod, known=known, action="reset", settle_timeout=0.5, nudge=True)
    assert report.verdict is Verdict.STALE
    assert "tcp://127.0.0.1:9 is not connected" in step(report, "index").detail


def test_without_a_replay_what_was_before_is_not_known(pod: SimPod) -> None:
    known = parse_pod(spec(pod, replay="none"))
    report = drive(pod, known=known, action="reset", settle_timeout=1.0, nudge=True)
    assert "has no replay" in step(report, "index").detail
    assert report.verdict is Verdict.STALE


def test_a_lost_clear_is_recovered_from_the_replay(pod: SimPod, later) -> None:
    def lose() -> None:
        fault(pod, "drop", batches=1)
        later(0.2, complete, pod, [5])
        later(0.4, complete, pod, [6] * 20)

    report = drive(pod, lose, action="reset", timeout=8.0)
    assert report.verdict is Verdict.VERIFIED


def test_without_dev_mode_the_remedy_is_named() -> None:
    with SimPod(SimConfig(dev_mode=False)) as pod:
        report = drive(pod, action="reset")
        assert report.verdict is Verdict.FAILED
        assert "VLLM_SERVER_DEV_MODE=1" in step(report, "call").detail


def test_two_operators_resetting_at_once_both_end_verified(pod: SimPod) -> None:
    reports = []
    runs = [
        threading.Thread(
            target=lambda: reports.append(drive(pod, action="reset", nudge=True, timeout=2.0))
        )
        for _ in range(2)
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert [report.verdict for report in reports] == [Verdict.VERIFIED] * 2
    assert [report.entries_after for report in reports] == [0, 0]


def test_an_engine_that_flushes_at_once_needs_no_nudge(pod: SimPod) -> None:
    fault(pod, "flush", mode="immediate")
    for options in ({"action": "reset"}, {"action": "sleep", "level": 1}):
        report = drive(pod, timeout=5.0, **options)
        assert report.verdict is Verdict.VERIFIED


def test_a_nudge_that_a_sleeping_engine_never_answers_ends_in_time(pod: SimPod) -> None:
    drive(pod, action="sleep")
    report = drive(pod, action="reset", nudge=True, timeout=0.4)
    assert report.verdict is Verdict.STALE
    assert step(report, "nudge").ok is False


def test_an_api_that_is_down_while_the_stream_works_fails(pod: SimPod) -> None:
    known = parse_pod(spec(pod, api="http://127.0.0.1:9"))
    report = drive(pod, known=known, action="reset", purge=True)
    assert (report.verdict, report.entries_after) == (Verdict.FAILED, 4)
    assert step(report, "index").ok is True
