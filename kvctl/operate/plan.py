"""What to do about each stream of an index, given what its engine shows: a pure function.

A wipe shows in an engine's state or process; a sleep that is over by now shows only in counters,
without its level. Then the stream decides, if something comes on it: a clear (nothing is left to
do), or batches without one (it was level 0). Until then the entries are suspect.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from kvctl.engine import WIPED, EngineState, PodState, State
from kvctl.index import StreamFacts

Stream = tuple[str, int]


class Verdict(StrEnum):
    """What a stream's entries are worth."""

    PURGE = "purge"
    SUSPECT = "suspect"
    KEEP = "keep"
    UNKNOWN = "unknown"


CLOCK_MARGIN_S = 2.0
"""How far an engine's clock may be from ours. A batch must be so much younger than a doubt to have
been sent behind what raised it."""


@dataclass(frozen=True)
class Doubt:
    """A suspicion that waits for the stream to decide. ``since`` is our clock when the engine was
    asked; ``last_gap`` the last gap known then."""

    reason: str
    since: float
    last_gap: float | None


@dataclass(frozen=True)
class Remembered:
    """What a round leaves to the next, of one stream: the engine's last known state, a doubt that
    is not settled, and since when its state is unknown (our clock)."""

    state: EngineState | None = None
    doubt: Doubt | None = None
    unknown_since: float | None = None


@dataclass(frozen=True)
class Decision:
    """The verdict over one stream, over a whole pod where the index tells no ranks (``rank`` None).

    Of a purge, the entries last stored before ``cutoff`` (engine time) are stale, all where it is
    None.
    """

    pod: str
    rank: int | None
    state: str
    entries: int
    verdict: Verdict
    reason: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    cutoff: float | None = None


@dataclass(frozen=True)
class Plan:
    """A decision per stream of the index, and what to remember for the next round. ``entries``
    are those of the whole index."""

    decisions: tuple[Decision, ...]
    memory: Mapping[Stream, Remembered]
    entries: int


def plan(
    facts: Collection[StreamFacts],
    states: Mapping[str, PodState],
    memory: Mapping[Stream, Remembered],
    *,
    fleet: Collection[str] | None,
    now: float,
    clock_margin: float = CLOCK_MARGIN_S,
    certain_names: bool = True,
) -> Plan:
    """Judge every stream of the index that ``states`` or ``fleet`` speak of.

    ``facts`` must have been read before the engines were asked: what they tell of was stored
    before. ``fleet`` are the names of all pods there are, from a list that was read to its end:
    one that is not among them is gone. None where no such list was read: then streams of pods
    without a state are left alone. Without ``certain_names`` a pod of the index that the fleet
    has not may be one of it under another name, and is only suspect.
    """
    decisions: list[Decision] = []
    remembered = dict(memory)
    for known in facts:
        state = states.get(known.pod)
        if state is None:
            if fleet is not None and known.pod not in fleet:
                decisions.append(_gone(known, certain_names))
                for key in [key for key in remembered if key[0] == known.pod]:
                    del remembered[key]
            continue
        engines = {each.rank: each for each in state.states}
        ranks = [known.rank] if known.rank is not None else sorted(engines) or [0]
        of_ranks = []
        for rank in ranks:
            before = memory.get((known.pod, rank), Remembered())
            decision, remembered[known.pod, rank] = _judge(
                known, engines.get(rank), before, now, clock_margin
            )
            of_ranks.append(decision)
        decisions.append(of_ranks[0] if len(of_ranks) == 1 else _together(of_ranks))
    return Plan(tuple(decisions), remembered, sum(known.entries for known in facts))


def _gone(known: StreamFacts, certain: bool) -> Decision:
    if certain:
        return _decide(known, "gone", Verdict.PURGE, "the pod is not in the fleet any more")
    reason = "no pod of the fleet has this name or address"
    verdict = Verdict.SUSPECT if known.entries else Verdict.KEEP
    return _decide(known, "gone", verdict, reason)


def _together(ranks: list[Decision]) -> Decision:
    """One decision over a pod whose entries do not tell which DP rank they are of.

    Its entries are stale for certain only where every rank's are.
    """
    verdicts = {each.verdict for each in ranks}
    if len(verdicts) == 1:
        verdict = verdicts.pop()
    elif Verdict.UNKNOWN in verdicts:
        verdict = Verdict.UNKNOWN
    else:
        verdict = Verdict.SUSPECT
    first = next((each for each in ranks if each.verdict is not Verdict.KEEP), ranks[0])
    reason = first.reason
    if verdict is Verdict.SUSPECT and first.verdict is Verdict.PURGE:
        reason = f"{first.reason}; not so on every rank, and the index does not tell ranks apart"
    states = [each.state for each in ranks]
    return replace(
        first,
        state=", ".join(dict.fromkeys(states)),
        verdict=verdict,
        reason=reason,
        evidence={**first.evidence, "ranks": states},
    )


def _judge(
    known: StreamFacts,
    engine: EngineState | None,
    before: Remembered,
    now: float,
    clock_margin: float,
) -> tuple[Decision, Remembered]:
    if engine is None or engine.verdict is State.UNKNOWN:
        reason = engine.reason if engine is not None else "the metrics do not name this rank"
        since = before.unknown_since if before.unknown_since is not None else now
        told = {"unknown_since": since}
        decision = _decide(known, State.UNKNOWN.value, Verdict.UNKNOWN, reason, told)
        return decision, Remembered(before.state, before.doubt, since)
    if known.block_size and engine.block_size and known.block_size != engine.block_size:
        wrong = (
            f"the index counts blocks of {known.block_size} tokens, the engine "
            f"{engine.block_size}: it takes nothing in of what the engine tells"
        )
        engine = replace(engine, reason=f"{engine.reason}; {wrong}")
    evidence: dict[str, Any] = dict(engine.evidence)
    name = engine.verdict.value
    started = engine.process_start_time
    if engine.verdict in WIPED:
        decision = _decide(known, name, Verdict.PURGE, engine.reason, evidence)
        return decision, Remembered(engine)
    if started is not None and known.oldest is not None and known.oldest < started:
        reason = "the engine's process started after entries were stored"
        evidence |= {"oldest_entry": known.oldest}
        decision = _decide(known, name, Verdict.PURGE, reason, evidence, started)
        return decision, Remembered(engine, before.doubt)
    doubt = _doubt(known, engine, before, now)
    if doubt is None:
        return _decide(known, name, Verdict.KEEP, engine.reason, evidence), Remembered(engine)
    evidence |= {"suspect_since": doubt.since}
    if settled := _settled(known, doubt, clock_margin):
        return _decide(known, name, Verdict.KEEP, settled, evidence), Remembered(engine)
    decision = _decide(known, name, Verdict.SUSPECT, doubt.reason, evidence)
    return decision, Remembered(engine, doubt)


def _doubt(known: StreamFacts, engine: EngineState, before: Remembered, now: float) -> Doubt | None:
    """The doubt that this state raises or leaves standing."""
    if engine.verdict in (State.SUSPECT, State.HALTED):
        # As long as it does not run, nothing on its stream can settle it.
        since = before.doubt.since if before.doubt is not None else now
        return Doubt(engine.reason, since, known.last_gap)
    reason = _slept_between(engine, before) or _restarted_untimed(known, engine, before)
    return before.doubt if reason is None else Doubt(reason, now, known.last_gap)


def _slept_between(engine: EngineState, before: Remembered) -> str | None:
    """Why the cache may have been wiped since the state before, None where it was not."""
    now, previous = engine.operations, before.state
    if previous is None or engine.restarted_since(previous):
        if now.sleep or now.release:
            return "it has slept since its start, and the level is not to be told any more"
        return None
    then = previous.operations
    if now.sleep > then.sleep or now.release > then.release:
        if engine.verdict is State.PAUSED and now.wake == then.wake:
            return None  # the one sleep is the one it is in, at level 0
        return "it slept and woke since the last round, and the level is not to be told"
    if previous.verdict is State.HALTED:
        return "it was halted at the last round: a pause wipes the cache unless told not to"
    return None


def _restarted_untimed(known: StreamFacts, engine: EngineState, before: Remembered) -> str | None:
    """A restart since the last round, where no entry tells when it was stored."""
    if known.oldest is not None or not known.entries or before.state is None:
        return None
    if not engine.restarted_since(before.state):
        return None
    return "the engine started anew since the last round, and the index does not tell what is older"


def _settled(known: StreamFacts, doubt: Doubt, clock_margin: float) -> str | None:
    """What the stream has said since the doubt arose, None where it does not settle it."""
    after = doubt.since + clock_margin
    if known.last_clear is not None and known.last_clear > after:
        return "the stream has reported a clear since"
    if known.last_gap == doubt.last_gap and known.last_ts is not None and known.last_ts > after:
        return "the stream went on since, and brought every clear there was"
    return None


def _decide(
    known: StreamFacts,
    state: str,
    verdict: Verdict,
    reason: str,
    evidence: Mapping[str, Any] | None = None,
    cutoff: float | None = None,
) -> Decision:
    if verdict is not Verdict.KEEP and cutoff is None and known.newest is not None:
        # What was in the index when the engine was asked was stored before; clocks play no part.
        cutoff = math.nextafter(known.newest, math.inf)
    return Decision(
        known.pod, known.rank, state, known.entries, verdict, reason, evidence or {}, cutoff
    )
