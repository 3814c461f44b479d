"""One simulated pod: requests, scheduler steps, sleep and its levels, and its ports.

What it models is in vLLM 0.32 ``v1/engine/core`` and ``v1/core/sched/scheduler``: events are
published at the end of a step that had something to do, so what an idle engine does to its cache
is told with its next request.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from kvctl.events import AllBlocksCleared, EventBatch
from kvctl.sim.config import SimConfig
from kvctl.sim.metrics import SimMetrics
from kvctl.sim.pool import BlockPool, PoolFullError, Tokens
from kvctl.sim.publisher import SimPublisher

FlushMode: TypeAlias = Literal["step", "immediate", "never-clear"]
"""When events go out: at the end of a step, at once, or in steps but clears never."""

_TAGS = ("weights", "kv_cache", "scheduling")
_POLL_S = 0.02


class RefusedError(Exception):
    """What the engine answers with an error; ``status`` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Completion:
    """What became of a request."""

    prompt_tokens: int
    cached_tokens: int
    output: list[int]
    finished: str


class _Rank:
    """One scheduler: its pool, its stream, the requests it runs."""

    def __init__(self, config: SimConfig, number: int) -> None:
        self.number = number
        self.publisher = SimPublisher(config, number)
        self._config = config
        self.pool = self._new_pool()
        self.running: list[Tokens] = []
        self.flush_mode: FlushMode = "step"

    def _new_pool(self) -> BlockPool:
        config = self._config
        return BlockPool(config.blocks, config.block_size, int_hashes=config.int_hashes)

    def step_done(self) -> None:
        """The end of a step: everything queued goes out as one batch."""
        events, self.pool.events = self.pool.events, []
        if self.flush_mode == "never-clear":
            events = [event for event in events if not isinstance(event, AllBlocksCleared)]
        if events:
            self.publisher.publish(EventBatch(time.time(), events, self.number))

    def reset(self, *, running_too: bool = False) -> bool:
        """Forget every prefix. ``running_too`` takes the running requests' blocks first."""
        if running_too:
            for request in self.running:
                self.pool.finish(request)
        done = self.pool.reset()
        if self.flush_mode == "immediate":
            self.step_done()
        return done

    def restart(self) -> None:
        self.running.clear()
        self.pool = self._new_pool()
        self.publisher.restart()


class SimulatedEngine:
    """A pod's engines and what can be asked of them; its HTTP side is `kvctl.sim.http`.

    Thread-safe. Calls are made on a real engine through HTTP; tests may make them directly.
    """

    def __init__(self, config: SimConfig) -> None:
        self.config = config
        self.metrics = SimMetrics(config)
        self.slow_s = 0.0
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._ranks = [_Rank(config, rank) for rank in range(config.ranks)]
        self._turn = 0
        self._paused = self._weights_out = self._kv_out = False
        self._held = False
        self._abandoned = False
        self._life = 0
        self.closed = False

    @property
    def events(self) -> list[str]:
        """Each rank's event endpoint."""
        return [rank.publisher.events for rank in self._ranks]

    @property
    def replay(self) -> list[str]:
        """Each rank's replay endpoint."""
        return [rank.publisher.replay for rank in self._ranks]

    # -- requests -------------------------------------------------------------------------------

    def complete(
        self,
        prompt: Sequence[int],
        *,
        max_tokens: int = 1,
        lora: str | None = None,
        salt: str | None = None,
        rank: int | None = None,
        output: Sequence[int] | None = None,
        gone: Callable[[], bool] = lambda: False,
    ) -> Completion:
        """Run one request to its end. Waits while the engine sleeps, until ``gone`` says not to.

        ``output`` are the tokens it generates; by default they follow from the prompt's length.
        """
        if not prompt or max_tokens < 1:
            raise RefusedError(400, "a prompt of no tokens, or max_tokens below 1")
        with self._changed:
            scheduler = self._ranks[self._choose(rank)]
            self._wait(lambda: not self._asleep(), scheduler, gone)
            tokens = Tokens(list(prompt), lora, salt)
            life = self._life
            try:
                cached = scheduler.pool.start(tokens)
            except PoolFullError:
                raise RefusedError(503, "the prompt needs more blocks than are free") from None
            labels = self.metrics.rank(scheduler.number)
            self.metrics.queries.labels(**labels).inc(len(prompt))
            self.metrics.hits.labels(**labels).inc(cached)
            scheduler.running.append(tokens)
            self.metrics.running.labels(**labels).inc()
            scheduler.step_done()
            try:
                generated = self._generate(scheduler, tokens, max_tokens, output, life)
            finally:
                self.metrics.running.labels(**labels).dec()
                if tokens in scheduler.running:
                    scheduler.running.remove(tokens)
                    scheduler.pool.finish(tokens)
            whole = len(generated) == max_tokens
            return Completion(len(prompt), cached, generated, "length" if whole else "abort")

    def _generate(
        self,
        scheduler: _Rank,
        tokens: Tokens,
        max_tokens: int,
        output: Sequence[int] | None,
        life: int,
    ) -> list[int]:
        """Decode steps: each puts the token before into the cache; a hold stops them."""
        first = len(tokens.tokens)
        chosen = list(output or [(first + at) % 1000 + 1 for at in range(max_tokens)])
        done = [chosen[0]]
        while len(done) < max_tokens:
            while self._held and tokens in scheduler.running and life == self._life:
                self._changed.wait(_POLL_S)
            if tokens not in scheduler.running or life != self._life or self.closed:
                return done  # aborted by a sleep or a restart
            if self.config.step_s:
                self._changed.wait(self.config.step_s)
            if not tokens.blocks:  # preempted by a reset: computed anew
                tokens.digests, tokens.stored = [], 0
                scheduler.pool.start(tokens)
            scheduler.pool.append(tokens, done[-1])
            done.append(chosen[len(done) % len(chosen)])
            scheduler.step_done()
        return done

    def _choose(self, rank: int | None) -> int:
        if rank is None:
            self._turn += 1
            return (self._turn - 1) % len(self._ranks)
        if not 0 <= rank < len(self._ranks):
            raise RefusedError(400, f"there is no rank {rank}")
        return rank

    def _asleep(self) -> bool:
        return self._paused or self._weights_out or self._kv_out

    def _wait(self, ready: Callable[[], bool], scheduler: _Rank, gone: Callable[[], bool]) -> None:
        waiting = self.metrics.waiting.labels(**self.metrics.rank(scheduler.number))
        waiting.inc()
        try:
            while not ready():
                if self.closed:
                    raise RefusedError(503, "the engine is gone")
                if gone():
                    # The scheduler drops it in its first step after waking, which flushes.
                    self._abandoned = True
                    raise RefusedError(499, "the client is gone")
                self._changed.wait(_POLL_S)
        finally:
            waiting.dec()

    # -- control --------------------------------------------------------------------------------

    def reset(self, *, running_too: bool = False) -> bool:
        """`POST /reset_prefix_cache`: every rank's; whether all did."""
        with self._changed:
            done = [rank.reset(running_too=running_too) for rank in self._ranks]
            return all(done)

    def sleep(self, level: int, mode: str = "abort") -> None:
        """`POST /sleep`. Raises `RefusedError` for a level or mode there is not."""
        if level not in (0, 1, 2) or (level == 0 and self.config.version < (0, 17)):
            raise RefusedError(400, f"Invalid sleep level: {level}")
        if mode not in ("abort", "wait", "keep"):
            raise RefusedError(400, f"Invalid mode: {mode}")
        with self._operation("sleep"):
            self._pause(mode)
            if level:
                self._wipe()
                self._weights_out = self._kv_out = True
            self.metrics.show_state({1: "weights_offloaded", 2: "discard_all"}.get(level))

    def wake(self, tags: Sequence[str] = ()) -> str:
        """`POST /wake_up`, of everything or of the parts named; returns `awake` or `sleeping`."""
        with self._operation("wake"):
            known = set(tags or _TAGS) & set(_TAGS)
            if tags and not known:
                return "sleeping"
            self._weights_out = self._weights_out and "weights" not in known
            self._kv_out = self._kv_out and "kv_cache" not in known
            if not self._weights_out and not self._kv_out:
                self._paused = False
                self.metrics.show_state("awake")
            if not self._asleep() and self._abandoned:
                self._abandoned = False
                for rank in self._ranks:
                    rank.step_done()
            self._changed.notify_all()
            return "sleeping" if self._asleep() else "awake"

    def release(self) -> None:
        """`POST /release_kv_cache_memory`: wipes in any case, refuses where nothing is paused."""
        with self._operation("release_kv_cache_memory"):
            self._wipe()
            if not self._paused:
                raise RefusedError(500, "release_kv_cache_memory requires a completed pause")
            self._kv_out = True
            self.metrics.show_state(None)

    def pause(self, *, clear_cache: bool = True, mode: str = "abort") -> None:
        """`POST /pause`: the gauge goes on saying awake."""
        with self._changed:
            self._pause(mode)
            if clear_cache:
                self._wipe()

    def resume(self) -> None:
        """`POST /resume`."""
        with self._changed:
            self._paused = False
            self._changed.notify_all()

    @property
    def is_sleeping(self) -> bool:
        """`GET /is_sleeping`: true at any level, and while paused."""
        return self._asleep()

    @property
    def is_paused(self) -> bool:
        """`GET /is_paused`."""
        return self._paused

    @contextmanager
    def _operation(self, name: str):  # type: ignore[no-untyped-def]
        began = time.perf_counter()
        with self._changed:
            try:
                yield
            finally:
                self.metrics.count_operation(name, time.perf_counter() - began)

    def _pause(self, mode: str) -> None:
        if mode == "wait":
            while any(rank.running for rank in self._ranks) and not self.closed:
                self._changed.wait(_POLL_S)
        elif mode == "abort":
            for rank in self._ranks:
                for request in rank.running:
                    rank.pool.finish(request)
                rank.running.clear()
        self._paused = True
        self._changed.notify_all()

    def _wipe(self) -> None:
        for rank in self._ranks:
            rank.reset(running_too=True)

    # -- faults ---------------------------------------------------------------------------------

    def lose(self, batches: int, *, keep: bool = True) -> None:
        """The next batches of every rank are lost on the way; ``keep``: the replay has them."""
        for rank in self._ranks:
            rank.publisher.lose(batches, keep=keep)

    def stall(self, stalled: bool) -> None:
        """The replay does not answer while stalled."""
        for rank in self._ranks:
            rank.publisher.stalled = stalled

    def hold(self, held: bool) -> None:
        """Requests behind their first token stay running while held."""
        with self._changed:
            self._held = held
            self._changed.notify_all()

    def oom_reset(self) -> None:
        """Out of memory: the engine wipes its cache by itself and goes on."""
        with self._changed:
            for rank in self._ranks:
                rank.reset(running_too=True)

    def sleep_rank(self, number: int) -> None:
        """One DP rank sleeps and the others go on: the call reached no more of them.

        Raises `RefusedError` for a rank there is not.
        """
        if not 0 <= number < len(self._ranks):
            raise RefusedError(400, f"there is no rank {number}")
        with self._changed:
            self._ranks[number].reset(running_too=True)
            self.metrics.show_state("weights_offloaded", number)

    def set_flush(self, mode: FlushMode) -> None:
        """When events go out."""
        with self._changed:
            for rank in self._ranks:
                rank.flush_mode = mode

    def restart(self) -> None:
        """A new process on the same ports: empty cache, seqs from 0, new counters."""
        with self._changed:
            self._life += 1
            self._paused = self._weights_out = self._kv_out = self._held = False
            self._abandoned = False
            self.metrics = SimMetrics(self.config)
            for rank in self._ranks:
                rank.restart()
            self._changed.notify_all()

    def cache(self) -> list[dict[str, Any]]:
        """What each rank truly holds: block hashes with their number of copies."""
        with self._lock:
            return [{"rank": rank.number, "blocks": rank.pool.contents()} for rank in self._ranks]

    def close(self) -> None:
        """The process is gone: requests end, ports close."""
        with self._changed:
            if self.closed:
                return
            self.closed = True
            self._changed.notify_all()
        for rank in self._ranks:
            rank.publisher.close()
