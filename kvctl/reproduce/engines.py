"""The two engines of the experiment: asked, wiped, and their counters read, over real HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import requests

from kvctl.engine import ControlAnswer, parse_scrape
from kvctl.errors import KvctlError, UsageError
from kvctl.fleet import Pod
from kvctl.operate.sources import engine_client
from kvctl.reproduce.published import last_published
from kvctl.reproduce.scenario import Trigger

_LAG_S = 10.0
_POLL_S = 0.01
_ASK_S = 60.0
_TAKEN_S = 0.5
_RUN_TOKENS = 256


@dataclass(frozen=True)
class Counters:
    """Tokens that prefix-cache lookups asked for, and found, since the engine's start."""

    queries: int
    hits: int


class Engine:
    """One pod's engine. ``lora`` is the adapter that prompts are for, None for the base model.

    Raises `UsageError` for a pod that the experiment cannot use.
    """

    def __init__(self, pod: Pod, lora: str | None = None, api_key: str | None = None) -> None:
        if pod.api is None:
            raise UsageError(f"pod {pod.name} has no api", remedy="api=http://…")
        if len(pod.streams) != 1:
            raise UsageError(f"pod {pod.name} has several DP ranks", remedy="take one of a rank")
        if pod.streams[0].replay is None:
            raise UsageError(f"pod {pod.name} has no replay", remedy="replay=tcp://…")
        self.pod = pod
        self.client = engine_client(pod, api_key=api_key)
        self.seen = -1
        """The seq of the last batch that was taken in."""
        self._asked_for = lora or pod.model
        self._block_size = 0

    @property
    def name(self) -> str:
        """The pod's name."""
        return self.pod.name

    def last_seq(self) -> int:
        """The seq of the last batch it has published by now, -1 for none."""
        last = last_published(self.pod.streams[0].replay or "", self.seen + 1)
        return self.seen if last is None else last

    @property
    def model(self) -> str:
        """What prompts are asked of: the LoRA's or the base model's name."""
        if self._asked_for is None:
            models = self.client.models()
            if not models:
                raise KvctlError(f"pod {self.name} serves no model")
            self._asked_for = models[0]
        return self._asked_for

    @property
    def block_size(self) -> int:
        """Tokens in a block, by its metrics."""
        if not self._block_size:
            for rank in parse_scrape(self.client.metrics()).ranks.values():
                self._block_size = rank.block_size or self._block_size
        if not self._block_size:
            raise KvctlError(
                f"the metrics of pod {self.name} tell no block size",
                remedy="is its prefix cache on? kvctl pods",
            )
        return self._block_size

    def counters(self) -> Counters:
        """Its prefix-cache counters."""
        ranks = parse_scrape(self.client.metrics()).ranks.values()
        queries = [rank.prefix_queries for rank in ranks if rank.prefix_queries is not None]
        hits = [rank.prefix_hits for rank in ranks if rank.prefix_hits is not None]
        if not queries or not hits:
            raise KvctlError(
                f"the metrics of pod {self.name} tell no prefix-cache counters",
                remedy="is its prefix cache on? kvctl pods",
            )
        return Counters(sum(queries), sum(hits))

    def ask(self, prompt: Sequence[int], meanwhile: Callable[[], None] | None = None) -> int:
        """Have it complete a prompt by one token; returns how many tokens it had cached.

        ``meanwhile`` is done once the request is under way: a sleeping engine answers only when
        it was woken. The counters tell, which follow the answer by a moment.
        """
        before = self.counters()

        def complete() -> None:
            self.client.complete(prompt, self.model, timeout=_ASK_S)

        self._under_way(complete, meanwhile)
        found = before

        def counted() -> bool:
            nonlocal found
            found = self.counters()
            return found.queries - before.queries >= len(prompt)

        self._wait(counted, "to count a request")
        return found.hits - before.hits

    def while_waking(self, send: Callable[[], None], *, asleep: bool) -> None:
        """Send a request elsewhere, which may end up here; where it does and this engine is
        ``asleep``, wake it."""
        self._under_way(send, self.wake if asleep else None)

    def served(self, before: Counters, other: Engine, others_before: Counters, size: int) -> Engine:
        """Which of two engines has served a prompt of ``size`` tokens since."""
        found = self

        def known() -> bool:
            nonlocal found
            for engine, then in ((self, before), (other, others_before)):
                if engine.counters().queries - then.queries >= size:
                    found = engine
                    return True
            return False

        self._wait(known, "to count a request, nor did the other pod,")
        return found

    def _under_way(self, request: Callable[[], None], meanwhile: Callable[[], None] | None) -> None:
        """Make a request, and do something once the engine has it or it is over."""
        if meanwhile is None:
            request()
            return
        with ThreadPoolExecutor(1) as worker:
            asked = worker.submit(request)
            # A sleeping engine of vLLM does not always count what waits for it.
            end = time.monotonic() + _TAKEN_S
            while not asked.done() and time.monotonic() < end and self._load() == 0:
                time.sleep(_POLL_S)
            meanwhile()
            asked.result()

    def wipe(self, trigger: Trigger, traffic: Sequence[int]) -> str:
        """Do what the trigger says, but for the traffic behind it; returns what the engine said.

        ``traffic`` is a prompt that shares nothing with others.
        """
        if trigger in (Trigger.RESET_IDLE, Trigger.RESET_THEN_TRAFFIC):
            return self._answer(self.client.reset())
        if trigger is Trigger.RESET_RUNNING:
            return self._reset_running(traffic)
        if trigger is Trigger.SLEEP_1_WAKE:
            told = self._answer(self.client.sleep(1))
            self.wake()
            return f"{told}; then it was woken"
        if trigger.sleep_level is not None:
            return self._answer(self.client.sleep(trigger.sleep_level))
        if trigger in (Trigger.OOM_RESET, Trigger.RESTART):
            self._simulate(trigger.value)
            return f"the simulated engine did: {trigger}"
        return "nothing was done"

    def wake(self) -> None:
        """Wake it, at any level."""
        self.client.wake()

    def _reset_running(self, traffic: Sequence[int]) -> str:
        """Reset while a request runs; the request goes on and ends before this returns."""
        held = self._simulate("hold")
        with ThreadPoolExecutor(1) as worker:
            running = worker.submit(
                self.client.complete, traffic, self.model, max_tokens=_RUN_TOKENS, timeout=_ASK_S
            )
            try:
                self._wait(lambda: running.done() or self._load() > 0, "to run the request")
                told = self._answer(self.client.reset(reset_running=True))
            finally:
                if held:
                    self._simulate("release")
            running.result()
        return told

    def _load(self) -> int:
        ranks = parse_scrape(self.client.metrics()).ranks.values()
        return sum((rank.running or 0) + (rank.waiting or 0) for rank in ranks)

    def _simulate(self, fault: str) -> bool:
        """Ask a simulated engine for a fault; False where it is a real one."""
        answer = requests.post(f"{self.pod.api}/sim/{fault}", timeout=_LAG_S)
        return answer.ok

    def _answer(self, answer: ControlAnswer) -> str:
        if answer.ok is False:
            raise KvctlError(f"pod {self.name}: {answer.detail}")
        return answer.detail

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + _LAG_S
        while not condition():
            if time.monotonic() >= end:
                raise KvctlError(f"pod {self.name} did not come {what} within {_LAG_S:g} s")
            time.sleep(_POLL_S)
