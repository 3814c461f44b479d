from __future__ import annotations

import socket

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from kvctl.errors import KvctlError
from kvctl.operate.metrics import ReconcileMetrics
from kvctl.operate.plan import Decision, Verdict
from kvctl.operate.reconcile import Outcome, Round
from kvctl.operate.resync import Resync


def scrape(metrics: ReconcileMetrics) -> dict[tuple[str, ...], float]:
    text = requests.get(f"http://127.0.0.1:{metrics.port}/metrics", timeout=5).text
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def outcome(pod: str, rank: int | None, verdict: Verdict, stale: int, purged: int) -> Outcome:
    return Outcome(Decision(pod, rank, "awake", 10, verdict, ""), stale, purged)


def test_rounds_add_up_and_gauges_show_the_last_one() -> None:
    metrics = ReconcileMetrics(0, "127.0.0.1")
    try:
        first = Round(
            False,
            (outcome("a", 0, Verdict.PURGE, 7, 5), outcome("b", None, Verdict.SUSPECT, 3, 0)),
            (Resync("a", 1, 0),),
        )
        metrics.done(first, lambda: 1234.5)
        told = scrape(metrics)
        assert told["kvctl_reconcile_rounds_total",] == 1
        assert told["kvctl_reconcile_purged_entries_total", "a"] == 5
        assert told["kvctl_reconcile_resyncs_total", "a"] == 1
        assert told["kvctl_index_entries", "b", ""] == 10
        assert told["kvctl_index_stale_entries", "a", "0"] == 2
        assert told["kvctl_reconcile_verdict", "b", "", "suspect"] == 1
        assert told["kvctl_reconcile_verdict", "b", "", "keep"] == 0
        assert told["kvctl_reconcile_last_round_timestamp_seconds",] == 1234.5
        metrics.done(Round(False, (outcome("a", 0, Verdict.PURGE, 1, 1),)), lambda: 2000.0)
        metrics.failed()
        told = scrape(metrics)
        assert told["kvctl_reconcile_purged_entries_total", "a"] == 6
        assert told["kvctl_reconcile_failures_total",] == 1
        assert told["kvctl_index_stale_entries", "a", "0"] == 0
        assert ("kvctl_index_entries", "b", "") not in told
    finally:
        metrics.close()


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(KvctlError, match=f"port {port}.*--metrics-port"):
            ReconcileMetrics(port, "127.0.0.1")
