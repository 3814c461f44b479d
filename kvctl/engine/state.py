"""`EngineState`: what is known of one DP rank's engine, from one scrape and the one before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from kvctl.engine.scrape import GAUGE, NO_OPERATIONS, OPERATIONS, Operations, RankScrape, Scrape
from kvctl.engine.verdict import Before, Evidence, State, Verdict, judge

_CLOCK_GRAIN = 1.0  # seconds by which one process' start time may differ between two pages


@dataclass(frozen=True)
class EngineState:
    """One DP rank's engine at one time.

    ``verdict`` is the state, ``reason`` one sentence that says why, ``evidence`` the series and
    answers that led there, with their values. ``at`` is our clock, seconds since the epoch, taken
    before the engine was asked. The rest is what the page says, None where it says nothing;
    ``operations`` and ``process_start_time`` are the whole pod's.
    """

    rank: int
    verdict: State
    reason: str
    at: float
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    operations: Operations = NO_OPERATIONS
    process_start_time: float | None = None
    num_gpu_blocks: int | None = None
    block_size: int | None = None
    prefix_queries: int | None = None
    prefix_hits: int | None = None
    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None

    def restarted_since(self, previous: EngineState) -> bool:
        """Whether the process is another than the one ``previous`` was scraped from.

        Told by its start time, and by a counter that went back, for pods of several API
        servers, which have no start time.
        """
        ours, theirs = self.process_start_time, previous.process_start_time
        if ours is not None and theirs is not None and abs(ours - theirs) > _CLOCK_GRAIN:
            return True
        now, then = self.operations, previous.operations
        counters = (
            (now.sleep, then.sleep),
            (now.wake, then.wake),
            (now.release, then.release),
            (self.prefix_queries, previous.prefix_queries),
        )
        return any(a is not None and b is not None and a < b for a, b in counters)


def engine_states(
    scrape: Scrape,
    *,
    previous: Mapping[int, EngineState] | None = None,
    is_sleeping: bool | None = None,
    is_paused: bool | None = None,
    at: float,
) -> tuple[EngineState, ...]:
    """The state of every rank a page names, by rank; of rank 0 where it names none.

    ``previous`` holds, by rank, the last state that came from a page of metrics. ``is_sleeping``
    and ``is_paused`` are the endpoints' answers, for the whole pod, None where they gave none:
    the first stands in for a missing gauge, the second shows a pause that the gauge hides.
    """
    known = previous or {}
    return tuple(
        _engine_state(scrape, rank, known.get(rank.rank), is_sleeping, is_paused, at)
        for rank in scrape.ranks.values() or (RankScrape(0),)
    )


def unknown_states(ranks: Iterable[int], reason: str, *, at: float) -> tuple[EngineState, ...]:
    """A state `unknown` for each rank, for one and the same reason."""
    return tuple(EngineState(rank, State.UNKNOWN, reason, at) for rank in sorted(set(ranks)))


def _engine_state(
    scrape: Scrape,
    rank: RankScrape,
    previous: EngineState | None,
    is_sleeping: bool | None,
    is_paused: bool | None,
    at: float,
) -> EngineState:
    state = EngineState(
        rank.rank,
        State.UNKNOWN,
        "",
        at,
        _evidence(scrape, rank, is_sleeping, is_paused),
        rank.models,
        scrape.operations,
        scrape.process_start_time,
        rank.num_gpu_blocks,
        rank.block_size,
        rank.prefix_queries,
        rank.prefix_hits,
        rank.running,
        rank.waiting,
        rank.kv_usage,
    )
    before = None
    if previous is not None and not state.restarted_since(previous):
        before = Before(previous.verdict, previous.operations)
    verdict = judge(
        tuple(rank.gauges.values()),
        scrape.operations,
        scrape.in_flight,
        scrape.first_done,
        before,
        is_sleeping=is_sleeping,
        is_paused=is_paused,
    )
    return _with(state, verdict, previous if before else None)


def _with(state: EngineState, verdict: Verdict, previous: EngineState | None) -> EngineState:
    evidence = dict(state.evidence)
    if verdict.used_before and previous is not None:
        evidence["previous state"] = previous.verdict.value
        evidence["previous scrape"] = previous.at
        for operation, count in _counts(previous.operations).items():
            evidence[f"previous {operation}"] = count
    return replace(state, verdict=verdict.state, reason=verdict.reason, evidence=evidence)


def _evidence(
    scrape: Scrape, rank: RankScrape, is_sleeping: bool | None, is_paused: bool | None
) -> dict[str, Evidence]:
    evidence: dict[str, Evidence] = {}
    for model, rows in rank.gauges.items():
        # The model matters only where there are several: it is the pod's own otherwise.
        of = f',model_name="{model}"' if len(rank.gauges) > 1 else ""
        for row, value in rows.items():
            evidence[f'{GAUGE}{{engine="{rank.rank}"{of},sleep_state="{row}"}}'] = value
    evidence |= _counts(scrape.operations)
    if scrape.process_start_time is not None:
        evidence["process_start_time_seconds"] = scrape.process_start_time
    answers = {"/is_sleeping": is_sleeping, "/is_paused": is_paused}
    return evidence | {path: told for path, told in answers.items() if told is not None}


def _counts(operations: Operations) -> dict[str, Evidence]:
    if not operations.counted:
        return {}
    counts = {
        "sleep": operations.sleep,
        "wake": operations.wake,
        "release_kv_cache_memory": operations.release,
    }
    return {f'{OPERATIONS}{{operation="{name}"}}': count for name, count in counts.items()}
