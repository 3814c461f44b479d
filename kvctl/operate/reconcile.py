"""One round of reconcile: read the index, ask the engines, plan, and carry the plan out."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

from kvctl.engine import EngineState, Operations, PodState, State, probe_state
from kvctl.errors import KvctlError
from kvctl.fleet import Pod
from kvctl.index import PurgeableIndex, StreamFacts
from kvctl.operate.memory import Memory
from kvctl.operate.plan import (
    CLOCK_MARGIN_S,
    Decision,
    Doubt,
    Plan,
    Remembered,
    Stream,
    Verdict,
    plan,
)
from kvctl.operate.resync import Resync, ResyncError
from kvctl.operate.sources import engine_client

_MEMORY = "reconcile"
_WORKERS = 16


class TooMuchError(KvctlError):
    """A plan that would empty more of the index than was allowed."""


@dataclass(frozen=True)
class ReconcileOptions:
    """What may be done. ``purge_unknown_after`` is in seconds, ``max_purge`` in percent of all
    entries; None where it was not asked for."""

    dry_run: bool = False
    purge_suspect: bool = False
    purge_unknown_after: float | None = None
    max_purge: float | None = None
    timeout: float = 10.0
    clock_margin: float = CLOCK_MARGIN_S


@dataclass(frozen=True)
class Outcome:
    """One decision, what of its entries is stale, and how many were purged."""

    decision: Decision
    stale: int
    purged: int = 0

    def to_dict(self) -> dict[str, Any]:
        """A row of `reconcile -o json`; no rank where the index tells none."""
        decision = self.decision
        rank = {} if decision.rank is None else {"rank": decision.rank}
        return {
            "pod": decision.pod,
            **rank,
            "state": decision.state,
            "entries": decision.entries,
            "stale_entries": self.stale,
            "verdict": decision.verdict.value,
            "reason": decision.reason,
            "evidence": dict(decision.evidence),
        }


@dataclass(frozen=True)
class Round:
    """What one round found and did. ``not_rebuilt`` says which pods' replay could not be had."""

    dry_run: bool
    outcomes: tuple[Outcome, ...]
    resynced: tuple[Resync, ...] = ()
    not_rebuilt: tuple[str, ...] = ()

    def _total(self, verdict: Verdict) -> int:
        return sum(each.stale for each in self.outcomes if each.decision.verdict is verdict)

    @property
    def stale(self) -> int:
        """Entries that are stale by the plan."""
        return self._total(Verdict.PURGE)

    @property
    def suspect(self) -> int:
        """Entries that may be stale."""
        return self._total(Verdict.SUSPECT)

    @property
    def purged(self) -> int:
        """Entries removed."""
        return sum(each.purged for each in self.outcomes)

    @property
    def unknown(self) -> int:
        """Streams whose engine's state is not known."""
        return sum(each.decision.verdict is Verdict.UNKNOWN for each in self.outcomes)

    @property
    def exit_code(self) -> int:
        """3 where drift stays, is suspected, or cannot be ruled out."""
        drift = self.stale > self.purged or self.not_rebuilt
        return 3 if drift or self.suspect or self.unknown else 0

    def to_dict(self) -> dict[str, Any]:
        """`reconcile -o json` (DESIGN, Output)."""
        return {
            "dry_run": self.dry_run,
            "pods": [each.to_dict() for each in self.outcomes],
            "summary": {
                "stale_entries": self.stale,
                "suspect_entries": self.suspect,
                "purged_entries": self.purged,
                "unknown": self.unknown,
            },
            **({"resynced": [asdict(each) for each in self.resynced]} if self.resynced else {}),
        }


class Reconciler:
    """Rounds over one index and one fleet. ``memory`` keeps what a round leaves to the next.

    ``whole_fleet`` says that ``pods`` are all there are, of those that it ``speaks_of``: streams of
    other pods are then purged as gone. Otherwise these are left alone. ``rebuild`` brings back what
    a purged pod that is awake has stored since; it may raise `ResyncError`.
    """

    def __init__(
        self,
        index: PurgeableIndex,
        memory: Memory,
        pods: Sequence[Pod],
        options: ReconcileOptions,
        *,
        whole_fleet: bool,
        speaks_of: Callable[[str], bool] = lambda _pod: True,
        api_key: str | None = None,
        rebuild: Callable[[Pod], Resync] | None = None,
    ) -> None:
        self._index = index
        self._rebuild = rebuild
        self._memory = memory
        self._pods = [pod for pod in pods if pod.api is not None]
        self._fleet = {pod.name for pod in pods} if whole_fleet else None
        self._speaks_of = speaks_of
        self._options = options
        self._api_key = api_key

    def plan(self, clock: Callable[[], float] = time.time) -> tuple[Plan, tuple[Outcome, ...]]:
        """Read the index, then ask the engines; returns the plan with what it would come to."""
        memory = _recall(self._memory.recall(_MEMORY))
        facts = self._index.facts()
        states = self._ask(memory, self._pods)
        made = plan(
            facts,
            states,
            memory,
            fleet=self._all_there_are(facts),
            now=clock(),
            clock_margin=self._options.clock_margin,
            certain_names=self._index.traits.pod_names,
        )
        decisions = [self._opted_in(decision, clock()) for decision in made.decisions]
        return made, tuple(Outcome(each, self._stale(each)) for each in decisions)

    def _all_there_are(self, facts: Sequence[StreamFacts]) -> set[str] | None:
        """The names that are not gone: those of the fleet, and those that its list is not about."""
        if self._fleet is None:
            return None
        return self._fleet | {fact.pod for fact in facts if not self._speaks_of(fact.pod)}

    def apply(self, made: Plan, outcomes: Sequence[Outcome]) -> Round:
        """Purge what the plan says is stale, and remember the round.

        Purging again changes nothing, so that two reconcilers do no harm. Raises `TooMuchError`
        before anything is purged.
        """
        self._check_share(made, outcomes)
        memory = dict(made.memory)
        done = []
        for outcome in outcomes:
            decision = outcome.decision
            if decision.verdict is not Verdict.PURGE or not outcome.stale:
                done.append(outcome)
                continue
            done.append(self._purge(outcome, made.memory))
            if not done[-1].purged:
                continue
            # What the doubt was about is gone.
            for key in [key for key in memory if key[0] == decision.pod]:
                if decision.rank in (None, key[1]):
                    memory[key] = replace(memory[key], doubt=None)
        resynced, not_rebuilt = self._resync(done)
        self._memory.remember(_MEMORY, _told(memory))
        return Round(False, tuple(done), resynced, not_rebuilt)

    def _resync(self, done: Sequence[Outcome]) -> tuple[tuple[Resync, ...], tuple[str, ...]]:
        """Rebuild the pods that are awake and were purged."""
        if self._rebuild is None:
            return (), ()
        emptied = {
            each.decision.pod
            for each in done
            if each.purged and each.decision.state == State.AWAKE.value
        }
        resynced, failed = [], []
        for pod in self._pods:
            if pod.name in emptied:
                try:
                    resynced.append(self._rebuild(pod))
                except ResyncError as error:
                    failed.append(str(error))
        return tuple(resynced), tuple(failed)

    def _purge(self, outcome: Outcome, memory: Mapping[Stream, Remembered]) -> Outcome:
        decision = outcome.decision
        if decision.cutoff is None and not self._as_before(decision, memory):
            reason = f"not purged: it was {decision.state}, and is not any more"
            return replace(outcome, decision=replace(decision, reason=reason))
        purged = self._index.purge(decision.pod, decision.rank, before=decision.cutoff)
        return replace(outcome, purged=purged)

    def _as_before(self, decision: Decision, memory: Mapping[Stream, Remembered]) -> bool:
        """Whether the engine still shows what condemned its entries.

        An index without times is purged whole: what a pod that has woken since the plan stores
        must not go with it.
        """
        pods = [pod for pod in self._pods if pod.name == decision.pod]
        if not pods:
            return True
        state = self._ask(memory, pods)[decision.pod]
        ranks = [each for each in state.states if decision.rank in (None, each.rank)]
        return ", ".join(dict.fromkeys(each.verdict.value for each in ranks)) == decision.state

    def look_on(self, made: Plan, outcomes: Sequence[Outcome]) -> Round:
        """Remember the round and purge nothing."""
        self._memory.remember(_MEMORY, _told(made.memory))
        return Round(True, tuple(outcomes))

    def run(self) -> Round:
        """One whole round; of a dry run, the plan alone."""
        made, outcomes = self.plan()
        if self._options.dry_run:
            return Round(True, outcomes)
        return self.apply(made, outcomes)

    def _ask(self, memory: Mapping[Stream, Remembered], pods: Sequence[Pod]) -> dict[str, PodState]:
        def ask(pod: Pod) -> PodState:
            client = engine_client(pod, api_key=self._api_key, timeout=self._options.timeout)
            known = {
                rank: each.state
                for (name, rank), each in memory.items()
                if name == pod.name and each.state is not None
            }
            before = PodState(pod.name, True, (), None, known=known)
            return probe_state(client, before, ranks=[stream.rank for stream in pod.streams])

        with ThreadPoolExecutor(_WORKERS) as workers:
            return {state.pod: state for state in workers.map(ask, pods)}

    def _opted_in(self, decision: Decision, now: float) -> Decision:
        """What the operator has said yes to beforehand becomes a purge."""
        options = self._options
        if decision.verdict is Verdict.SUSPECT and options.purge_suspect:
            return replace(decision, verdict=Verdict.PURGE)
        since = decision.evidence.get("unknown_since")
        after = options.purge_unknown_after
        if (
            decision.verdict is Verdict.UNKNOWN
            and after is not None
            and since is not None
            and now - since >= after
        ):
            reason = f"unknown for {now - since:.0f} s: {decision.reason}"
            return replace(decision, verdict=Verdict.PURGE, reason=reason)
        return decision

    def _stale(self, decision: Decision) -> int:
        if decision.verdict in (Verdict.KEEP, Verdict.UNKNOWN):
            return 0
        if decision.cutoff is None:
            return decision.entries
        return self._index.stored_before(decision.pod, decision.rank, decision.cutoff)

    def _check_share(self, made: Plan, outcomes: Sequence[Outcome]) -> None:
        most = self._options.max_purge
        total = made.entries
        doomed = sum(each.stale for each in outcomes if each.decision.verdict is Verdict.PURGE)
        if most is not None and total and doomed * 100 > most * total:
            raise TooMuchError(
                f"the plan would purge {doomed:,} of {total:,} entries, more than {most:g} %",
                remedy="look at it with --dry-run; is a scrape broken?",
            )


def _told(memory: Mapping[Stream, Remembered]) -> str:
    rows = []
    for (pod, rank), each in memory.items():
        row = asdict(each)
        if each.state is not None:
            row["state"]["verdict"] = each.state.verdict.value
        rows.append({"pod": pod, "rank": rank, **row})
    return json.dumps(rows)


def _recall(text: str | None) -> dict[Stream, Remembered]:
    """The memory of the last round; nothing where it is not in a form we know."""
    try:
        rows = json.loads(text or "[]")
        return {(row["pod"], row["rank"]): _row(row) for row in rows}
    except (ValueError, TypeError, KeyError):
        return {}


def _row(row: Mapping[str, Any]) -> Remembered:
    state, doubt = row["state"], row["doubt"]
    if state is not None:
        state = EngineState(
            **{
                **state,
                "verdict": State(state["verdict"]),
                "models": tuple(state["models"]),
                "operations": Operations(**state["operations"]),
            }
        )
    return Remembered(state, None if doubt is None else Doubt(**doubt), row["unknown_since"])
