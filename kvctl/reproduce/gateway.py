"""A router as the experiment models it: events in, an index, a choice."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

from kvctl.errors import KvctlError
from kvctl.events import (
    AllBlocksCleared,
    Batch,
    BlockRemoved,
    BlockStored,
    EventBatch,
    Record,
    WireBatch,
)
from kvctl.index import (
    POLICIES,
    Entry,
    IndexSummary,
    MemoryIndex,
    PodMatch,
    Prompt,
    StreamFacts,
    Traits,
)
from kvctl.index.match import prompt_contents
from kvctl.operate.reconcile import ReconcileOptions, Reconciler
from kvctl.operate.sources import stream_sources
from kvctl.reproduce.engines import Engine
from kvctl.reproduce.scenario import Delivery, Handler, Scenario
from kvctl.router import PREFIX as MATCHED
from kvctl.router import AibrixRouter, Choice, choose_longest
from kvctl.stream import StreamReader
from kvctl.text import plural

_CONNECT_S = 10.0
_EVENTS_S = 10.0
_POLL_S = 0.005
Tell = Callable[[str], None]


class ModelGateway:
    """One router in front of two engines: its index, what it does about wipes, and its choices.

    ``router`` is `aibrix` or `longest`. ``tell`` hears what happens. A lost clear is dropped
    between stream and index, with the whole batch it came in.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        scenario: Scenario,
        *,
        router: str,
        seed: int,
        lora: str | None,
        tell: Tell,
        keep: Callable[[Record], None] = lambda _record: None,
    ) -> None:
        self._engines = {engine.name: engine for engine in engines}
        self._scenario = scenario
        self._lora = lora
        self._tell = tell
        self._keep = keep
        self._aibrix = AibrixRouter(seed) if router == "aibrix" else None
        self._index = _RouterIndex(scenario, self._on_purge)
        self._memory = _RoundMemory()
        self._losing = False
        self._readers: dict[str, StreamReader] = {}
        self._stack = ExitStack()

    def __enter__(self) -> ModelGateway:
        with ExitStack() as stack:
            for name, engine in self._engines.items():
                # What the engine did before is nobody's business here. The replay sees to it that
                # nothing it does from now on is missed but what the scenario has lost.
                engine.seen = engine.last_seq()
                reader = StreamReader(list(stream_sources(engine.pod)), since_seq=engine.seen + 1)
                self._readers[name] = stack.enter_context(reader)
            for reader in self._readers.values():
                if missing := reader.wait_connected(_CONNECT_S):
                    raise KvctlError(
                        f"no events from {', '.join(missing)}",
                        remedy="is it up, and are its events on?",
                    )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.__exit__(None, None, None)

    def catch_up(self, *, stepped: str | None = None) -> None:
        """Take in everything the engines have published by now.

        ``stepped`` names a pod that has taken a step just now: its batch is waited for, since an
        engine may answer before it publishes.
        """
        end = time.monotonic() + _EVENTS_S
        waits_for = None if stepped is None else self._engines[stepped]
        goal = -1 if waits_for is None else waits_for.seen + 1
        while True:
            for name, reader in self._readers.items():
                self._take(self._engines[name], reader.read(_POLL_S))
            stepping = waits_for is not None and waits_for.seen < goal
            behind = [
                engine.name
                for engine in self._engines.values()
                if not stepping and engine.last_seq() > engine.seen
            ]
            if not behind and not stepping:
                return
            if time.monotonic() >= end:
                raise KvctlError(
                    f"the events of {', '.join(behind) or stepped} did not come",
                    remedy="is the stream connected? kvctl tail shows it",
                )

    def lose_clears(self) -> None:
        """From now on a batch with a clear is lost, where the scenario says so."""
        self._losing = self._scenario.delivery is Delivery.LOST

    def reconcile(self) -> None:
        """One round against the engines' scraped states."""
        if not self._scenario.handler.reconciles:
            return
        pods = [engine.pod for engine in self._engines.values()]
        options = ReconcileOptions(timeout=_CONNECT_S, clock_margin=0.0)
        done = Reconciler(self._index, self._memory, pods, options, whole_fleet=False).run()
        for outcome in done.outcomes:
            decision = outcome.decision
            self._tell(
                f"reconcile: {decision.pod} is {decision.state}: {decision.verdict}, "
                f"{decision.reason}; {plural(outcome.purged, 'entry')} purged"
            )

    def purge_at_once(self, pod: str, sleep_level: int | None) -> None:
        """What whoever drives a reset or a sleep does about the index."""
        handler = self._scenario.handler
        if not handler.purges_at_once:
            return
        if sleep_level == 0 and handler is not Handler.BLIND:
            self._tell(f"driver: a sleep at level 0 keeps the cache of {pod}: nothing to purge")
            return
        purged = self._index.purge(pod)
        self._tell(f"driver: purges {pod} at once: {plural(purged, 'entry')}")

    def claimed_blocks(self, pod: str, prompt: Sequence[int]) -> int:
        """How many leading blocks of a prompt the index says a pod holds."""
        match = self._index.match(self._prompt(prompt)).get(pod)
        return 0 if match is None else match.blocks

    def assume(self, prompt: Sequence[int], pod: str) -> None:
        """Count a prompt as sent to a pod, as the router does when it chose it."""
        if self._aibrix is not None:
            self._aibrix.assume(self._contents(prompt), pod)

    def route(self, prompt: Sequence[int]) -> Choice:
        """Choose a pod for a prompt; nothing runs meanwhile."""
        if self._aibrix is None:
            return choose_longest(self._index.match(self._prompt(prompt)))
        contents = self._contents(prompt)
        held: dict[bytes, set[str]] = {content: set() for content in contents}
        for entry in self._index.entries():
            if entry.content in held:
                held[entry.content].add(entry.pod)
        running = dict.fromkeys(self._engines, 0)
        choice = self._aibrix.route(contents, [held[each] for each in contents], running)
        if choice.rule == MATCHED:
            percents = ", ".join(
                f"{pod} {each.percent} %" for pod, each in choice.standings.items()
            )
            self._tell(f"router: matches {percents}")
        return choice

    # -- inside ---------------------------------------------------------------------------------

    def _take(self, engine: Engine, records: Sequence[Record]) -> None:
        for record in records:
            self._keep(record)
            if not isinstance(record, Batch):
                continue
            wire = record.wire
            engine.seen = wire.seq
            lost = self._losing and _has_clear(record)
            fate = " (lost on the way)" if lost else ""
            for event in record.events.events:
                self._tell(f"event: {wire.pod} #{wire.seq} {_shown(event)}{fate}")
            if not lost:
                self._index.apply(record)

    def _on_purge(self, pod: str) -> None:
        if self._aibrix is not None and not self._scenario.aibrix_scope:
            self._aibrix.forget(pod)

    def _prompt(self, prompt: Sequence[int]) -> Prompt:
        return Prompt(tuple(prompt), None, self._lora)

    def _contents(self, prompt: Sequence[int]) -> list[bytes]:
        engine = next(iter(self._engines.values()))
        model = next((each.model for each in self._index.summary().streams if each.model), "")
        return prompt_contents(self._prompt(prompt), model, engine.block_size)


class _RouterIndex:
    """The router's index, and the one way in which it purges."""

    traits = Traits()

    def __init__(self, scenario: Scenario, on_purge: Callable[[str], None]) -> None:
        name = "aibrix" if scenario.aibrix_scope else "purge"
        clears = POLICIES[name if scenario.handler.heeds_clears else "noop"]
        self._heeds = scenario.handler.heeds_clears
        self._scoped = POLICIES["aibrix"] if scenario.aibrix_scope else None
        # No router notices a restart from the events: AIBrix ignores a seq that goes back.
        self._memory = MemoryIndex(policy=clears)
        self._on_purge = on_purge
        self._last_ts: dict[tuple[str, int], float] = {}
        self._last_clear: dict[tuple[str, int], float] = {}

    def apply(self, batch: Batch) -> None:
        """Take one batch in."""
        key = (batch.wire.pod, batch.wire.rank)
        self._last_ts[key] = batch.events.ts
        if _has_clear(batch) and self._heeds:
            self._last_clear[key] = batch.events.ts
            self._on_purge(batch.wire.pod)
        self._memory.apply(batch)

    def summary(self) -> IndexSummary:
        """Counts per stream."""
        return self._memory.summary()

    def entries(self, pod: str | None = None) -> Iterator[Entry]:
        """Every entry."""
        return self._memory.entries(pod)

    def match(self, prompt: Prompt) -> dict[str, PodMatch]:
        """Per pod, how many leading blocks it holds."""
        return self._memory.match(prompt)

    def facts(self) -> list[StreamFacts]:
        """What is known of every stream besides its entries."""
        found = []
        for stream in self._memory.summary().streams:
            key = (stream.pod, stream.rank or 0)
            times = [
                entry.last_stored
                for entry in self._memory.entries(stream.pod)
                if entry.rank == stream.rank and entry.last_stored is not None
            ]
            found.append(
                StreamFacts(
                    stream.pod,
                    stream.rank,
                    stream.entries,
                    min(times, default=None),
                    max(times, default=None),
                    self._last_ts.get(key),
                    self._last_clear.get(key),
                )
            )
        return found

    def stored_before(self, pod: str, rank: int | None, cutoff: float | None) -> int:
        """How many entries were last stored before an engine time; all without ``cutoff``."""
        limit = math.inf if cutoff is None else cutoff
        return sum(
            entry.last_stored is not None and entry.last_stored < limit
            for entry in self._memory.entries(pod)
            if rank is None or entry.rank == rank
        )

    def purge(self, pod: str, rank: int | None = None, *, before: float | None = None) -> int:
        """Remove a pod's entries; in AIBrix's scope, those of the base model only."""
        if self._scoped is None:
            purged = self._memory.purge(pod, rank, before=before)
        else:
            # AIBrix has one way to purge, whoever asks for it: what it does on a clear.
            held = self._memory.entries_in(pod)
            clear = EventBatch(time.time(), [AllBlocksCleared()], rank or 0)
            wire = WireBatch(time.time_ns(), pod, rank or 0, b"", 0, b"")
            self._memory.apply(Batch(wire, clear))
            purged = held - self._memory.entries_in(pod)
        self._on_purge(pod)
        return purged


class _RoundMemory:
    """What a round leaves to the next, for as long as a cell takes."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def recall(self, name: str) -> str | None:
        """What was remembered under that name."""
        return self._texts.get(name)

    def remember(self, name: str, value: str) -> None:
        """Keep a text under a name."""
        self._texts[name] = value


def _has_clear(batch: Batch) -> bool:
    return any(isinstance(event, AllBlocksCleared) for event in batch.events.events)


def _shown(event: object) -> str:
    if isinstance(event, BlockStored):
        return f"BlockStored {plural(len(event.block_hashes), 'block')}"
    if isinstance(event, BlockRemoved):
        return f"BlockRemoved {plural(len(event.block_hashes), 'block')}"
    return type(event).__name__
