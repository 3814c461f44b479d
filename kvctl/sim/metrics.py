"""The metrics page of a simulated engine, in vLLM's names and labels."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from kvctl.sim.config import SimConfig

_ROWS = ("awake", "weights_offloaded", "discard_all")
_GAUGE_SINCE = (0, 11, 1)
_COUNTERS_SINCE = (0, 32)


class SimMetrics:
    """One life's series; a restarted engine has new ones."""

    def __init__(self, config: SimConfig) -> None:
        self._registry = registry = CollectorRegistry()
        self._ranks = [
            {"engine": str(rank), "model_name": config.model} for rank in range(config.ranks)
        ]
        labels = ["engine", "model_name"]
        start = Gauge("process_start_time_seconds", "Start of the process.", registry=registry)
        start.set(time.time())
        self.running = Gauge("vllm:num_requests_running", "Running.", labels, registry=registry)
        self.waiting = Gauge("vllm:num_requests_waiting", "Waiting.", labels, registry=registry)
        self.queries = Counter(
            "vllm:prefix_cache_queries", "Tokens queried.", labels, registry=registry
        )
        self.hits = Counter("vllm:prefix_cache_hits", "Tokens hit.", labels, registry=registry)
        self._state: Gauge | None = None
        if config.version >= _GAUGE_SINCE:
            self._state = Gauge(
                "vllm:engine_sleep_state", "State.", [*labels, "sleep_state"], registry=registry
            )
        self._operations: Histogram | None = None
        if config.version >= _COUNTERS_SINCE:
            self._operations = Histogram(
                "vllm:sleep_mode_operation_duration_seconds",
                "Duration of sleep mode operations.",
                ["operation"],
                registry=registry,
            )
        usage = Gauge("vllm:kv_cache_usage_perc", "Usage.", labels, registry=registry)
        info = Gauge(
            "vllm:cache_config_info",
            "Cache configuration.",
            ["engine", "block_size", "num_gpu_blocks", "enable_prefix_caching"],
            registry=registry,
        )
        for rank in self._ranks:
            for metric in (self.running, self.waiting, self.queries, self.hits, usage):
                metric.labels(**rank)
            info.labels(rank["engine"], config.block_size, config.blocks, "True").set(1)
        self.show_state("awake")

    def rank(self, rank: int) -> dict[str, str]:
        """The labels of a DP rank."""
        return self._ranks[rank]

    def show_state(self, state: str | None, rank: int | None = None) -> None:
        """Set the gauge's row of that name, the others to 0, of one rank or of all; None sets all
        to 0."""
        if self._state is not None:
            for labels in self._ranks if rank is None else [self._ranks[rank]]:
                for row in _ROWS:
                    self._state.labels(**labels, sleep_state=row).set(row == state)

    def count_operation(self, operation: str, seconds: float) -> None:
        """One sleep, wake or release, whether it worked or not."""
        if self._operations is not None:
            self._operations.labels(operation).observe(seconds)

    def page(self) -> bytes:
        """The page as text."""
        return generate_latest(self._registry)
