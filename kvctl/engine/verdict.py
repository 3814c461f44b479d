"""The rules that turn an engine's gauge, counters and past into one `State`.

The gauge has three rows per rank and is written by the API server when an operation is done
(vLLM 0.32 ``v1/engine/async_llm.py``): 1/0/0 awake, 0/1/0 and 0/0/1 asleep at levels 1 and 2,
0/0/0 after a sleep at level 0 (the cache is kept) and after a release of the KV memory (the cache
is wiped). A partial wake, a `/pause` and a `/resume` leave it as it is. The counters of finished
operations fill some of these holes, where the order of operations can be told from them; where it
cannot, the verdict is `suspect`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from kvctl.engine.scrape import Operations

Evidence: TypeAlias = float | int | bool | str

_PAUSED = "asleep at level 0: not awake, at no other level, and no release counted"

_ROWS = ("awake", "weights_offloaded", "discard_all")


class State(StrEnum):
    """What an engine is doing, as far as its prefix cache is concerned."""

    AWAKE = "awake"
    SLEEPING_1 = "sleeping-1"
    """Weights offloaded, cache wiped."""
    SLEEPING_2 = "sleeping-2"
    """Weights discarded, cache wiped."""
    PAUSED = "paused"
    """Asleep at level 0: nothing runs, the cache is kept."""
    HALTED = "halted"
    """Awake by the gauge but paused: `/pause` wipes the cache unless told to keep it."""
    RELEASED = "released"
    """KV memory given back, cache wiped."""
    WAKING = "waking"
    """Woken in part, cache wiped."""
    SUSPECT = "suspect"
    """Not awake; whether the cache is wiped cannot be told from here."""
    UNKNOWN = "unknown"
    """Nothing is known, least of all that it sleeps."""


WIPED = frozenset({State.SLEEPING_1, State.SLEEPING_2, State.RELEASED, State.WAKING})
"""States in which an engine holds no block."""


@dataclass(frozen=True)
class Verdict:
    """A state and the sentence that says why; ``used_before`` where the past decided it."""

    state: State
    reason: str
    used_before: bool = False


@dataclass(frozen=True)
class Before:
    """The last state known of the same process, and its counters then."""

    state: State
    operations: Operations


def judge(
    gauges: tuple[Mapping[str, float], ...],
    operations: Operations,
    in_flight: Operations,
    first_done: Mapping[str, float],
    before: Before | None,
    *,
    is_sleeping: bool | None,
    is_paused: bool | None,
) -> Verdict:
    """The verdict over one rank. ``gauges`` are the rows, one mapping per model."""
    if not gauges:
        return _without_gauge(is_sleeping, is_paused)
    if fault := _fault(gauges):
        return Verdict(State.UNKNOWN, fault)
    rows = gauges[0]
    if rows["awake"]:
        return _awake(in_flight, is_sleeping, is_paused)
    since = _Since(operations, before)
    if rows["weights_offloaded"]:
        return _asleep(State.SLEEPING_1, since, in_flight, first_done)
    if rows["discard_all"]:
        return _asleep(State.SLEEPING_2, since, in_flight, first_done)
    return _neither(since, first_done, is_paused)


class _Since:
    """How often each operation was done since the state before; 0 where nothing is known of it."""

    def __init__(self, operations: Operations, before: Before | None) -> None:
        self.total = operations
        self.before = before.state if before is not None else State.UNKNOWN
        then = before.operations if before is not None else operations
        self.sleep = operations.sleep - then.sleep
        self.wake = operations.wake - then.wake
        self.release = operations.release - then.release


def _without_gauge(is_sleeping: bool | None, is_paused: bool | None) -> Verdict:
    if is_sleeping is None:
        return Verdict(
            State.UNKNOWN, "the metrics have no engine_sleep_state and /is_sleeping gave no answer"
        )
    if is_paused and not is_sleeping:
        return Verdict(State.HALTED, "awake by /is_sleeping, but /is_paused says paused")
    if is_sleeping:
        return Verdict(
            State.SUSPECT,
            "/is_sleeping says asleep, and the metrics have no engine_sleep_state to tell the "
            "level: at level 0 the cache is kept",
        )
    return Verdict(
        State.AWAKE, "awake by /is_sleeping; the metrics have no engine_sleep_state (before 0.11.1)"
    )


def _fault(gauges: tuple[Mapping[str, float], ...]) -> str:
    for rows in gauges:
        missing = [row for row in _ROWS if row not in rows]
        if missing:
            return f"engine_sleep_state lacks its row {missing[0]}"
        if any(value not in (0, 1) for value in rows.values()):
            return "engine_sleep_state has a value that is neither 0 nor 1"
        if sum(rows.values()) > 1:
            return "engine_sleep_state says more than one state at once"
        if any(rows[row] for row in rows.keys() - set(_ROWS)):
            return "engine_sleep_state says a state that kvctl does not know"
    if any(rows != gauges[0] for rows in gauges):
        return "engine_sleep_state differs between the models of this rank"
    return ""


def _awake(in_flight: Operations, is_sleeping: bool | None, is_paused: bool | None) -> Verdict:
    if is_paused or is_sleeping:
        said = "/is_paused says paused" if is_paused else "/is_sleeping says asleep"
        return Verdict(
            State.HALTED,
            f"awake by engine_sleep_state, but {said}: a pause wipes the cache unless told not to",
        )
    if in_flight.sleep:
        return Verdict(State.AWAKE, "awake by engine_sleep_state, with a sleep under way")
    return Verdict(State.AWAKE, "awake by engine_sleep_state")


def _asleep(
    state: State, since: _Since, in_flight: Operations, first_done: Mapping[str, float]
) -> Verdict:
    """Asleep by the gauge, which a partial wake does not change; the cache is wiped either way."""
    level = f"asleep at level {state.value[-1]} by engine_sleep_state"
    if in_flight.wake:
        return Verdict(State.WAKING, f"{level}, with a wake under way")
    if since.before in WIPED and not since.sleep and since.wake:
        return Verdict(State.WAKING, f"{level}, and a wake since then did not wake all of it", True)
    if since.before is State.WAKING and not since.sleep:
        return Verdict(State.WAKING, f"{level}, and woken in part before", True)
    if _only_sleep_came_before(since.total, "wake", first_done):
        return Verdict(State.WAKING, f"{level}, and a wake after its only sleep did not wake all")
    return Verdict(state, level)


def _neither(since: _Since, first_done: Mapping[str, float], is_paused: bool | None) -> Verdict:
    """0/0/0: level 0, or released, or asleep at another level before level 0 was asked for."""
    if since.before is State.UNKNOWN:
        verdict = _at_first_sight(since.total, first_done)
    else:
        verdict = _after(since)
    if verdict.state is State.PAUSED and is_paused is False:
        return Verdict(
            State.AWAKE,
            "engine_sleep_state shows a sleep at level 0, but /is_paused says that it was resumed",
            verdict.used_before,
        )
    return verdict


def _at_first_sight(total: Operations, first_done: Mapping[str, float]) -> Verdict:
    """0/0/0 with no past to go by."""
    if total.release:
        if not total.wake and _only_sleep_came_before(total, "release_kv_cache_memory", first_done):
            return Verdict(State.RELEASED, "not awake, and a release came after its only sleep")
        return Verdict(
            State.SUSPECT, "not awake, and a release was counted: before or after it was last awake"
        )
    if total.sleep - total.wake > 1:
        return Verdict(
            State.SUSPECT,
            "not awake; sleeps were counted without a wake between, and all but the last may have "
            "been deeper than level 0",
        )
    return Verdict(State.PAUSED, _PAUSED)


def _after(since: _Since) -> Verdict:
    """0/0/0, seen after another state of the same process."""
    if since.release and since.wake:
        return _suspect("a release and a wake were counted since the last scrape")
    if since.release:
        return Verdict(
            State.RELEASED, "not awake, and a release was counted since the last scrape", True
        )
    if since.before in WIPED or since.before is State.SUSPECT:
        return _after_a_wipe(since)
    if since.before is State.HALTED:
        return _suspect("it was halted at the last scrape")
    if since.sleep > 1:
        return _suspect("several sleeps were counted since the last scrape, only the last visible")
    return Verdict(State.PAUSED, _PAUSED, True)


def _after_a_wipe(since: _Since) -> Verdict:
    """0/0/0, wiped or perhaps wiped when last seen, and nothing released since then."""
    if since.wake and not since.sleep:
        # After level 0 any wake is a whole one (vLLM 0.32 `EngineCore.wake_up`).
        return Verdict(
            State.WAKING, "a wake was counted since the last scrape, and did not wake all", True
        )
    if since.wake:
        return _suspect("a wake and a sleep were counted since the last scrape")
    if not since.total.counted:
        return _suspect("it was asleep at the last scrape, and this engine counts no wakes")
    return Verdict(
        since.before, f"{since.before.value} at the last scrape, and no wake counted since", True
    )


def _suspect(reason: str) -> Verdict:
    return Verdict(State.SUSPECT, f"not awake; {reason}", True)


def _only_sleep_came_before(
    total: Operations, operation: str, first_done: Mapping[str, float]
) -> bool:
    """Whether there was one sleep only, and all operations of this kind came after it."""
    slept, done = first_done.get("sleep"), first_done.get(operation)
    return total.sleep == 1 and slept is not None and done is not None and done > slept
