"""Drives one engine (reset, sleep, wake) and checks that the index followed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kvctl.engine import (
    WIPED,
    ControlAnswer,
    EngineClient,
    EngineError,
    PodState,
    State,
    probe_state,
)
from kvctl.index import IndexStoreError
from kvctl.operate.live import LiveIndex
from kvctl.operate.probe import CacheProbe
from kvctl.operate.target import Target
from kvctl.operate.verdicts import Report, Step, Verdict

Action: TypeAlias = Literal["reset", "sleep", "wake"]

# An index that a running `tail --index` feeds is behind the stream by its commits.
_FOLLOW_S = 3.0
_FOLLOW_POLL_S = 0.25

# A prompt of one token fills no block: it makes the engine step and stores nothing.
_NUDGE = [1]


@dataclass(frozen=True)
class ControlOptions:
    """What to do and how hard to look. Times in seconds.

    ``timeout`` is how long to wait for the clear, ``call_timeout`` for the engine's answer,
    ``settle_timeout`` for the streams and their replays.
    """

    action: Action
    level: int = 1
    mode: str | None = None
    tags: tuple[str, ...] = ()
    reset_running: bool = False
    reset_external: bool = False
    nudge: bool = False
    probe: bool = False
    purge: bool = False
    timeout: float = 5.0
    call_timeout: float = 60.0
    settle_timeout: float = 10.0

    @property
    def title(self) -> str:
        """The action with its level, as it stands in a report."""
        return f"sleep level {self.level}" if self.action == "sleep" else self.action

    @property
    def wipes(self) -> bool:
        """Whether the engine loses its cache by this."""
        return self.action == "reset" or (self.action == "sleep" and self.level > 0)


class Control:
    """One run over one pod. ``tell`` hears each step as it is done.

    ``target`` is the index that must follow: what the pod's own streams tell, if not given.
    """

    def __init__(
        self,
        client: EngineClient,
        live: LiveIndex,
        options: ControlOptions,
        tell: Callable[[Step], None] = lambda _step: None,
        target: Target | None = None,
    ) -> None:
        self._client = client
        self._live = live
        self._target: Target = live if target is None else target
        self._options = options
        self._tell = tell
        self._steps: list[Step] = []
        self._seen_well = True
        self._probe: CacheProbe | None = None

    def run(self) -> Report:
        """Do it. Raises nothing for what an engine or a stream can do: it is in the report.

        Raises `IndexStoreError` for an index that cannot be read before anything was done.
        """
        before = self._look()
        self._index()
        if self._options.probe and self._options.wipes:
            self._probe_before(before)
        self._live.pump(0.0)
        cutoff = self._cutoff()
        entries = self._target.entries_before(cutoff)
        seen = len(self._live.wipes)
        answer = self._call()
        if answer is None:
            return self._report(entries, self._target.entries_before(cutoff), Verdict.FAILED)
        if not self._expects_wipe(before):
            return self._kept(before, entries, cutoff)
        cleared = self._await_clear(seen)
        probed = self._probe_after()
        if probed is False:
            self._note("check", False, "the engine still has its cache: nothing may be purged")
            return self._report(entries, self._target.entries_before(cutoff), Verdict.FAILED)
        proven = answer.ok is True or cleared or probed is True
        try:
            return self._check(entries, cutoff, cleared, proven)
        except IndexStoreError as error:
            self._note("check", False, f"the call was made, but {error}")
            return self._report(entries, entries, Verdict.STALE)

    def _look(self) -> PodState:
        """The state before, for what the call will mean."""
        state = probe_state(self._client, ranks=[s.rank for s in self._live.pod.streams])
        verdicts = ", ".join(dict.fromkeys(each.verdict.value for each in state.states))
        self._note("state", None if state.error else True, state.error or verdicts)
        return state

    def _index(self) -> None:
        amiss = self._live.settle(self._options.settle_timeout)
        if self._target.fed_elsewhere:
            entries = self._target.entries_before(self._cutoff())
            told = f"{entries} entries in {self._target.title}"
            self._note("index", not amiss, "; ".join([told, *amiss]))
            return
        entries = self._live.index.entries_in(self._live.pod.name)
        if amiss:
            self._seen_well = False
            self._note("index", False, f"{entries} entries, but {'; '.join(amiss)}")
        else:
            self._note("index", True, f"{entries} entries, from the streams and their replay")

    def _cutoff(self) -> float | None:
        """What divides the entries by now from those that come, in engine time.

        The stream may have told of blocks that whoever feeds the index is yet to file.
        """
        times = {self._live.cutoff(), self._target.cutoff()} - {None}
        return max((time for time in times if time is not None), default=None)

    def _call(self) -> ControlAnswer | None:
        """The call itself; None where it failed."""
        options = self._options
        timeout = options.call_timeout
        try:
            if options.action == "reset":
                answer = self._client.reset(
                    reset_running=options.reset_running,
                    reset_external=options.reset_external,
                    timeout=timeout,
                )
            elif options.action == "sleep":
                answer = self._client.sleep(options.level, mode=options.mode, timeout=timeout)
            else:
                answer = self._client.wake(options.tags, timeout=timeout)
        except EngineError as error:
            maybe = "; it may have happened all the same" if error.sent else ""
            self._note("call", False, f"{error}{maybe}")
            return None
        remedy = ""
        if answer.ok is False and options.action == "reset" and not options.reset_running:
            remedy = " (wait for them, or --reset-running)"
        self._note("call", answer.ok, answer.detail + remedy)
        return None if answer.ok is False else answer

    def _expects_wipe(self, before: PodState) -> bool:
        if self._options.action != "wake":
            return self._options.wipes
        return any(each.verdict in WIPED for each in before.states)

    def _kept(self, before: PodState, entries: int, cutoff: float | None) -> Report:
        """Nothing was wiped: the index must be left alone."""
        after = self._target.entries_before(cutoff)
        if self._options.action == "sleep":
            self._note("check", True, f"level 0 keeps the cache: {after} entries stay valid")
            return self._report(entries, after, Verdict.KEPT)
        if any(each.verdict in (State.UNKNOWN, State.SUSPECT) for each in before.states):
            self._note(
                "check",
                None,
                f"how deep it slept is not known: whether its {after} entries are stale neither",
            )
            return self._report(entries, after, Verdict.STALE if after else Verdict.AWAKE)
        self._note("check", True, f"it was not asleep with its cache wiped: {after} entries stay")
        return self._report(entries, after, Verdict.AWAKE)

    def _await_clear(self, seen: int) -> bool:
        """Wait for the clear of every DP rank; nudge where that was asked for."""
        live, options = self._live, self._options
        asleep = options.action == "sleep"
        # An engine that sleeps does not step: waiting long for its clear would be in vain.
        missing = live.wait_for_wipe(seen, min(1.0, options.timeout) if asleep else options.timeout)
        if not missing:
            self._note("clear", True, "the stream reported the clear")
            return True
        who = "the engine" if len(live.pod.streams) == 1 else f"rank {_ranks(missing)}"
        self._note(
            "clear",
            False,
            f"no clear on the stream: {who} has not stepped since"
            + (", as a sleeping engine does not before it wakes" if asleep else ""),
        )
        if not options.nudge or not self._nudge(asleep, len(missing)):
            return False
        missing = live.wait_for_wipe(seen, options.timeout)
        if missing:
            self._note("clear", False, f"no clear after the nudge from rank {_ranks(missing)}")
        else:
            self._note("clear", True, "the stream reported the clear after the nudge")
        return not missing

    def _nudge(self, asleep: bool, ranks: int) -> bool:
        if asleep:
            self._note("nudge", None, "not sent: a sleeping engine does not answer before it wakes")
            return False
        try:
            model = self._live.pod.model or self._client.models()[0]
            # Several ranks take requests in turn: one for each of them.
            for _ in range(max(ranks, len(self._live.pod.streams)) if ranks > 1 else 1):
                self._client.complete(_NUDGE, model, timeout=self._options.timeout)
        except (EngineError, IndexError) as error:
            self._note("nudge", False, str(error) or "the engine names no model")
            return False
        self._note("nudge", True, "a completion of one token made the engine step")
        return True

    def _check(self, entries: int, cutoff: float | None, cleared: bool, proven: bool) -> Report:
        self._live.pump(0.0)
        left = self._left(cutoff, wait=cleared)
        purged = 0
        if left and self._options.purge and not proven:
            self._note("purge", None, "not done: whether the engine did it is not known (--probe)")
        elif left and self._options.purge:
            purged = self._target.purge(cutoff)
            left = self._target.entries_before(cutoff)
            router = "" if self._target.fed_elsewhere else ", not from a router's"
            self._note("purge", True, f"{purged} entries removed from {self._target.title}{router}")
        clean = not left and self._seen_well
        detail = f"{left} entries from before the call remain"
        if left:
            detail += ": an index that goes by the events still holds them"
        elif not self._seen_well:
            detail += " in what could be seen of the streams"
        self._note("check", clean, detail)
        if not clean:
            verdict = Verdict.STALE
        elif self._options.action == "wake":
            verdict = Verdict.AWAKE
        elif purged or not cleared:
            verdict = Verdict.PURGED
        else:
            verdict = Verdict.VERIFIED
        return self._report(entries, left, verdict)

    def _left(self, cutoff: float | None, *, wait: bool) -> int:
        """The entries from before the call; whoever feeds the index is given time to follow."""
        end = time.monotonic() + (_FOLLOW_S if wait and self._target.fed_elsewhere else 0.0)
        while (left := self._target.entries_before(cutoff)) and time.monotonic() < end:
            time.sleep(_FOLLOW_POLL_S)
        return left

    def _probe_before(self, before: PodState) -> None:
        if self._options.action == "sleep":
            self._note("probe", None, "a sleeping engine answers nothing: reset can be probed")
        elif len(self._live.pod.streams) > 1:
            self._note("probe", None, "of several DP ranks, each prompt may reach another")
        else:
            self._probe = CacheProbe(self._client, self._live.pod.model, before)
            self._note("probe before", *self._probe.warm())

    def _probe_after(self) -> bool | None:
        if self._probe is None:
            return None
        cold, detail = self._probe.expect_cold()
        self._note("probe after", cold, detail)
        return cold

    def _note(self, name: str, ok: bool | None, detail: str) -> None:
        step = Step(name, ok, detail)
        self._steps.append(step)
        self._tell(step)

    def _report(self, before: int, after: int, verdict: Verdict) -> Report:
        return Report(
            self._live.pod.name,
            self._options.action,
            tuple(self._steps),
            before,
            after,
            verdict,
        )


def _ranks(ranks: frozenset[int]) -> str:
    return ", ".join(map(str, sorted(ranks)))
