"""A page of Prometheus metrics -> `Scrape`: what it says about each DP rank.

Series are vLLM's (``v1/metrics/loggers.py`` and ``entrypoints/serve/dev/sleep/metrics.py`` of
0.32). A page is taken whole or not at all: a counter cut in the middle is still a number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from kvctl.engine.answers import printable
from kvctl.engine.errors import ScrapeError

MAX_SCRAPE = 16 * 1024 * 1024
"""Longest page that is read, in characters."""

GAUGE = "vllm:engine_sleep_state"
OPERATIONS = "vllm:sleep_mode_operation_duration_seconds_count"
OPERATIONS_CREATED = "vllm:sleep_mode_operation_duration_seconds_created"
IN_FLIGHT = "vllm:sleep_mode_operations_in_flight"

_CONFIG = "vllm:cache_config_info"
_START = "process_start_time_seconds"
_RUNNING = "vllm:num_requests_running"
_WAITING = "vllm:num_requests_waiting"

# Newest name first: up to vLLM 0.10 these were called after the GPU, for a while both ways.
_QUERIES = ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total")
_HITS = ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total")
_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")

_RANK_SERIES = frozenset({GAUGE, _RUNNING, _WAITING, *_QUERIES, *_HITS, *_USAGE})
_SERIES = _RANK_SERIES | {OPERATIONS, OPERATIONS_CREATED, IN_FLIGHT, _CONFIG, _START}

# prometheus-client's parser goes character by character in Python, and all but a few of the
# thousands of lines are histogram buckets nobody asks for: it gets only the lines that count.
_WANTED = re.compile(rf"[ \t]*(?:{'|'.join(map(re.escape, sorted(_SERIES)))})[ \t{{]")
_PROMETHEUS = re.compile(
    r"(?m)^(?:# (?:HELP|TYPE) |[a-zA-Z_:][a-zA-Z0-9_:]*(?:\{.*\})? +[-+0-9NI])"
)
_LONGEST_LINE = 64 * 1024
_LARGEST = 2.0**53


@dataclass(frozen=True)
class RankScrape:
    """What a page says about one DP rank.

    ``gauges`` holds, per model name, the rows of `vllm:engine_sleep_state` by their
    `sleep_state`; it is empty where the engine has no such gauge (before vLLM 0.11.1). Prefix
    cache counts are in tokens, summed over models. What the page does not say is None.
    """

    rank: int
    models: tuple[str, ...] = ()
    gauges: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    num_gpu_blocks: int | None = None
    block_size: int | None = None
    prefix_queries: int | None = None
    prefix_hits: int | None = None
    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None


@dataclass(frozen=True)
class Operations:
    """Finished sleep-mode operations of a pod, failed ones included; 0 before the first.

    Only vLLM from 0.32 on counts them: ``counted`` is False where the page has none, be it that
    the engine is older or that nothing happened yet.
    """

    sleep: int = 0
    wake: int = 0
    release: int = 0
    counted: bool = False


NO_OPERATIONS = Operations()


@dataclass(frozen=True)
class Scrape:
    """One page of metrics.

    ``operations`` and ``in_flight`` (under way right now) are the pod's, not a rank's.
    ``first_done`` is when each operation was first done, seconds since the epoch, for pods whose
    API server is a single process. ``process_start_time`` is likewise absent for several.
    """

    ranks: Mapping[int, RankScrape] = field(default_factory=dict)
    operations: Operations = NO_OPERATIONS
    in_flight: Operations = NO_OPERATIONS
    first_done: Mapping[str, float] = field(default_factory=dict)
    process_start_time: float | None = None


def parse_scrape(text: str) -> Scrape:
    """Read a page of metrics. Raises `ScrapeError` and nothing else, whatever the text."""
    _check_page(text)
    lines = [line for line in text.split("\n") if _WANTED.match(line)]
    if not lines and not _PROMETHEUS.search(text):
        raise ScrapeError("the answer holds no Prometheus metrics")
    return _scrape(_Series(_samples(lines)))


def _check_page(text: str) -> None:
    if len(text) > MAX_SCRAPE:
        raise ScrapeError(f"the page of {len(text)} characters is over the limit of {MAX_SCRAPE}")
    start = text[:64].lstrip().lower()
    if not start:
        raise ScrapeError("the page of metrics is empty")
    if start.startswith(("<!doctype", "<html")):
        raise ScrapeError("the answer is a web page, not metrics")
    if not text.endswith("\n"):
        raise ScrapeError("the page of metrics is cut off in its last line")


def _samples(lines: Iterable[str]) -> list[Sample]:
    samples: list[Sample] = []
    for line in lines:
        try:
            if len(line) > _LONGEST_LINE:
                raise ValueError
            # One line at a time, so that a fault is named with its line.
            for family in text_string_to_metric_families(line):
                samples += family.samples
        except (ValueError, IndexError, KeyError, TypeError, OverflowError):
            raise ScrapeError(f"a damaged line of metrics: {printable(line, 120)}") from None
    return samples


class _Series:
    """Samples by series name, checked: each value is one that such a series can have."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self.by_name: dict[str, list[Sample]] = {}
        seen: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for sample in samples:
            value, key = sample.value, (sample.name, frozenset(sample.labels.items()))
            if not (math.isfinite(value) and 0 <= value <= _LARGEST):
                raise ScrapeError(f"{_name(sample)} is {value:g}, which it cannot be")
            if seen.setdefault(key, value) != value:
                raise ScrapeError(f"{_name(sample)} is there twice, with different values")
            self.by_name.setdefault(sample.name, []).append(sample)

    def of(self, *names: str) -> list[Sample]:
        """The samples of the first of these series that is there."""
        return next((self.by_name[name] for name in names if name in self.by_name), [])

    def by_operation(self, name: str) -> dict[str, float]:
        return {sample.labels.get("operation", ""): sample.value for sample in self.of(name)}


def _scrape(series: _Series) -> Scrape:
    ranks: dict[int, dict[str, list[Sample]]] = {}
    for name in sorted(_RANK_SERIES):
        for sample in series.of(name):
            ranks.setdefault(_rank(sample), {}).setdefault(name, []).append(sample)
    configs: dict[int | None, Sample] = {}
    for sample in series.of(_CONFIG):
        configs[_rank(sample) if "engine" in sample.labels else None] = sample
    for rank in configs:
        ranks.setdefault(rank or 0, {})
    return Scrape(
        {
            rank: _rank_scrape(rank, ranks[rank], configs.get(rank, configs.get(None)))
            for rank in sorted(ranks)
        },
        _operations(series.by_operation(OPERATIONS)),
        _operations(series.by_operation(IN_FLIGHT)),
        series.by_operation(OPERATIONS_CREATED),
        next((sample.value for sample in series.of(_START)), None),
    )


def _rank_scrape(rank: int, of: Mapping[str, list[Sample]], config: Sample | None) -> RankScrape:
    def total(*names: str) -> int | None:
        samples = next((of[name] for name in names if name in of), None)
        return None if samples is None else int(sum(sample.value for sample in samples))

    gauges: dict[str, dict[str, float]] = {}
    for sample in of.get(GAUGE, ()):
        rows = gauges.setdefault(sample.labels.get("model_name", ""), {})
        rows[sample.labels.get("sleep_state", "")] = sample.value
    usage = next((of[name] for name in _USAGE if name in of), [])
    samples = [sample for name in sorted(of) for sample in of[name]]
    models = dict.fromkeys(sample.labels.get("model_name", "") for sample in samples)
    labels = config.labels if config is not None else {}
    return RankScrape(
        rank,
        tuple(sorted(model for model in models if model)),
        gauges,
        _int_label(labels.get("num_gpu_blocks")),
        _int_label(labels.get("block_size")),
        total(*_QUERIES),
        total(*_HITS),
        total(_RUNNING),
        total(_WAITING),
        max((sample.value for sample in usage), default=None),
    )


def _operations(counts: Mapping[str, float]) -> Operations:
    return Operations(
        int(counts.get("sleep", 0)),
        int(counts.get("wake", 0)),
        int(counts.get("release_kv_cache_memory", 0)),
        bool(counts),
    )


def _rank(sample: Sample) -> int:
    label = sample.labels.get("engine", "0")
    if not re.fullmatch(r"[0-9]{1,6}", label):
        raise ScrapeError(f"{printable(_name(sample), 120)}: {label[:20]!r} is no DP rank")
    return int(label)


def _int_label(label: str | None) -> int | None:
    """A number from a label, None where it says `None` or anything else that is no count."""
    return int(label) if label is not None and re.fullmatch(r"[0-9]{1,15}", label) else None


def _name(sample: Sample) -> str:
    labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
    return printable(f"{sample.name}{{{labels}}}" if labels else sample.name, 160)
