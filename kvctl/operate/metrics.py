"""What standing reconciles have done, as Prometheus metrics."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from kvctl.errors import KvctlError
from kvctl.operate.plan import Verdict
from kvctl.operate.reconcile import Round


class ReconcileMetrics:
    """Counters over all rounds, gauges of the last one; served at ``port`` until closed.

    Raises `KvctlError` where the port cannot be had.
    """

    def __init__(self, port: int, address: str = "0.0.0.0") -> None:
        self._registry = registry = CollectorRegistry()
        self._rounds = Counter("kvctl_reconcile_rounds", "Rounds done.", registry=registry)
        self._failures = Counter(
            "kvctl_reconcile_failures", "Rounds that could not be finished.", registry=registry
        )
        self._purged = Counter(
            "kvctl_reconcile_purged_entries", "Entries purged.", ["pod"], registry=registry
        )
        self._resynced = Counter(
            "kvctl_reconcile_resyncs", "Pods rebuilt from replay.", ["pod"], registry=registry
        )
        labels = ["pod", "rank"]
        self._entries = Gauge(
            "kvctl_index_entries", "Entries before the last round.", labels, registry=registry
        )
        self._stale = Gauge(
            "kvctl_index_stale_entries",
            "Entries the last round found stale and did not purge.",
            labels,
            registry=registry,
        )
        self._verdict = Gauge(
            "kvctl_reconcile_verdict",
            "1 for the verdict of the last round, 0 for the others.",
            [*labels, "verdict"],
            registry=registry,
        )
        self._last = Gauge(
            "kvctl_reconcile_last_round_timestamp_seconds",
            "When the last round was finished, by our clock.",
            registry=registry,
        )
        try:
            self._server, self._thread = start_http_server(port, address, registry)
        except OSError as error:
            raise KvctlError(
                f"metrics cannot be served at port {port}: {error.strerror}",
                remedy="give another --metrics-port",
            ) from None

    @property
    def port(self) -> int:
        """The port, told by the system for 0."""
        return int(self._server.server_port)

    def done(self, finished: Round, now: Callable[[], float]) -> None:
        """Take a finished round in. Streams that are in no round any more are dropped."""
        self._rounds.inc()
        for gauge in (self._entries, self._stale, self._verdict):
            gauge.clear()
        for outcome in finished.outcomes:
            decision = outcome.decision
            rank = "" if decision.rank is None else str(decision.rank)
            self._entries.labels(decision.pod, rank).set(decision.entries)
            left = outcome.stale - outcome.purged if decision.verdict is Verdict.PURGE else 0
            self._stale.labels(decision.pod, rank).set(left)
            for verdict in Verdict:
                self._verdict.labels(decision.pod, rank, verdict.value).set(
                    verdict is decision.verdict
                )
            self._purged.labels(decision.pod).inc(outcome.purged)
        for pod in finished.resynced:
            self._resynced.labels(pod.pod).inc()
        self._last.set(now())

    def failed(self) -> None:
        """Count a round that ended in an error."""
        self._failures.inc()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
