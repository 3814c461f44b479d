"""Asks an engine whether it still has a prompt in its cache, by its own count of cached tokens."""

from __future__ import annotations

import random
import time

from kvctl.engine import EngineClient, EngineError, PodState, ScrapeError, Usage, parse_scrape

_BLOCKS = 3
_DEFAULT_BLOCK_SIZE = 16
# Ids that any tokenizer has, and that are seldom special ones.
_TOKENS = range(100, 900)
_METRICS_LAG_S = 2.0


class CacheProbe:
    """A prompt of random tokens, sent before and after: nobody else sends it."""

    def __init__(self, client: EngineClient, model: str | None, state: PodState) -> None:
        self._client = client
        self._model = model
        self._warm = False
        sizes = [each.block_size for each in state.states if each.block_size]
        length = _BLOCKS * (sizes[0] if sizes else _DEFAULT_BLOCK_SIZE) + 1
        self._tokens = random.SystemRandom().choices(_TOKENS, k=length)

    def warm(self) -> tuple[bool | None, str]:
        """Send it twice: the second must hit, or the probe proves nothing later."""
        try:
            self._cached()
            cached = self._cached()
        except (EngineError, ScrapeError) as error:
            return None, str(error)
        if cached is None:
            return None, "the engine counts no cached tokens"
        self._warm = cached > 0
        return cached > 0, f"{cached} of {len(self._tokens)} tokens cached when sent again"

    def expect_cold(self) -> tuple[bool | None, str]:
        """Send it once more: after a wipe nothing of it may be cached.

        None where the engine never had it cached: then its absence proves nothing.
        """
        try:
            cached = self._cached()
        except (EngineError, ScrapeError) as error:
            return None, str(error)
        if cached is None:
            return None, "the engine counts no cached tokens"
        cold = cached == 0 if self._warm else None
        return cold, f"{cached} of {len(self._tokens)} tokens cached after the wipe"

    def _cached(self) -> int | None:
        """Tokens of the prompt the engine had cached: from its answer, else from its counters."""
        before = self._counters()
        usage = self._complete()
        if usage.cached_tokens is not None:
            return usage.cached_tokens
        if before is None:
            return None
        # The counters follow the answer by a moment. Other traffic counts in them too: on a busy
        # pod the difference is an upper bound.
        deadline = time.monotonic() + _METRICS_LAG_S
        while True:
            after = self._counters()
            if after is not None and after[0] - before[0] >= len(self._tokens):
                return after[1] - before[1]
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.05)

    def _complete(self) -> Usage:
        if self._model is None:
            models = self._client.models()
            if not models:
                raise EngineError(self._client.pod_name, "GET /v1/models", "it names no model")
            self._model = models[0]
        return self._client.complete(self._tokens, self._model)

    def _counters(self) -> tuple[int, int] | None:
        """(tokens queried, tokens hit) over all ranks."""
        ranks = parse_scrape(self._client.metrics()).ranks.values()
        queries = [rank.prefix_queries for rank in ranks if rank.prefix_queries is not None]
        hits = [rank.prefix_hits for rank in ranks if rank.prefix_hits is not None]
        return (sum(queries), sum(hits)) if queries and hits else None
