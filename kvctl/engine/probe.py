"""One pod asked for its state: a scrape, then the endpoints that fill the scrape's holes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from kvctl.engine.client import EngineClient
from kvctl.engine.errors import EngineError, NotAnEngine, ScrapeError, Unreachable
from kvctl.engine.scrape import parse_scrape
from kvctl.engine.state import EngineState, engine_states, unknown_states
from kvctl.engine.verdict import State

_T = TypeVar("_T")

_SGLANG = "SGLang does not tell whether it sleeps"


@dataclass(frozen=True)
class PodState:
    """One pod at one time.

    ``reachable`` says whether an engine answered at all. ``states`` has one entry per rank and
    always at least one; ``error`` says why all of them are unknown, where they are for one
    reason. ``healthy`` is the answer of `/health`, None where there was none. ``notes`` are lesser
    faults. ``known`` holds, by rank, the last state that was not `unknown`, be it this probe's or
    an earlier one's.
    """

    pod: str
    reachable: bool
    states: tuple[EngineState, ...]
    error: str | None
    healthy: bool | None = None
    notes: tuple[str, ...] = ()
    known: Mapping[int, EngineState] = field(default_factory=dict)


def probe_state(
    client: EngineClient,
    previous: PodState | None = None,
    *,
    ranks: Iterable[int] = (),
    clock: Callable[[], float] = time.time,
) -> PodState:
    """Ask the pod for its state. Raises no `EngineError`: what went wrong is in the outcome.

    ``previous`` is the probe before, which tells what one scrape alone cannot. ``ranks`` are
    those the pod should have: one that its metrics do not name is `unknown`.
    """
    known = dict(previous.known) if previous is not None else {}
    expected = frozenset(ranks) | known.keys() or frozenset({0})
    asked = _Questions()
    at = clock()

    def outcome(
        states: tuple[EngineState, ...], error: EngineError | None = None, *, reachable: bool
    ) -> PodState:
        return PodState(
            client.pod_name,
            reachable,
            states,
            None if error is None else str(error),
            asked.healthy,
            tuple(asked.notes),
            known,
        )

    try:
        if client.kind == "sglang":
            asked.healthy = client.health()
            return outcome(unknown_states(expected, _SGLANG, at=at), reachable=True)
        states = _ask(client, asked, known, at)
    except EngineError as error:
        reason = f"{error.call}: {error.reason}"
        reachable = not isinstance(error, Unreachable | NotAnEngine)
        return outcome(unknown_states(expected, reason, at=at), error, reachable=reachable)
    known |= {state.rank: state for state in states if state.verdict is not State.UNKNOWN}
    missing = expected - {state.rank for state in states}
    rest = unknown_states(missing, "the metrics do not name this rank", at=at)
    return outcome(tuple(sorted(states + rest, key=_by_rank)), reachable=True)


class _Questions:
    """Asks what need not be answered; after one answer that never came, asks no more."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.healthy: bool | None = None
        self._silent = False

    def ask(self, question: Callable[[], _T]) -> _T | None:
        if self._silent:
            return None
        try:
            return question()
        except EngineError as error:
            self.notes.append(str(error))
            self._silent = isinstance(error, Unreachable)
            return None


def _ask(
    client: EngineClient, asked: _Questions, known: Mapping[int, EngineState], at: float
) -> tuple[EngineState, ...]:
    try:
        scrape = parse_scrape(client.metrics())
    except ScrapeError as error:
        raise EngineError(client.pod_name, "GET /metrics", error.message) from None
    asked.healthy = asked.ask(client.health)
    if asked.healthy is False:  # the page is the API server's and outlives the engine
        raise EngineError(client.pod_name, "GET /health", "the engine calls itself dead")
    gauges = [rows for rank in scrape.ranks.values() for rows in rank.gauges.values()]
    gauge_missing = not gauges or not all(rank.gauges for rank in scrape.ranks.values())
    # At levels 1 and 2 the cache is gone, and whether scheduling is paused changes nothing.
    undecided = gauge_missing or not all(
        rows.get("weights_offloaded") or rows.get("discard_all") for rows in gauges
    )
    return engine_states(
        scrape,
        previous=known,
        is_sleeping=asked.ask(client.is_sleeping) if gauge_missing else None,
        is_paused=asked.ask(client.is_paused) if undecided else None,
        at=at,
    )


def _by_rank(state: EngineState) -> int:
    return state.rank
