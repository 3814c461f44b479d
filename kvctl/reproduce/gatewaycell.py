"""One cell through a real gateway: the pods' counters tell which of them it chose."""

from __future__ import annotations

import logging
import time
from random import Random

import requests

from kvctl.errors import KvctlError
from kvctl.reproduce.cell import PREFIX_BLOCKS, SHARED_BLOCKS, TOKENS
from kvctl.reproduce.engines import Engine
from kvctl.reproduce.scenario import CellResult, Scenario, Trigger
from kvctl.text import exchange

_ASK_S = 60.0
_log = logging.getLogger(__name__)


def run_gateway_cell(
    scenario: Scenario,
    a: Engine,
    b: Engine,
    gateway: str,
    *,
    seed: int,
    settle: float,
    highest_token: int = TOKENS[1],
    headers: dict[str, str] | None = None,
) -> CellResult:
    """Warm both pods behind the gateway's back, wipe A, and send the prefix through the gateway.

    ``settle`` seconds are left to the gateway to take events in: it tells nobody when it has.
    Raises `KvctlError`.
    """
    random = Random(seed)
    story: list[str] = []
    began = time.monotonic()

    def tell(text: str) -> None:
        story.append(f"{time.monotonic() - began:6.2f}s  {text}")

    def tokens(blocks: int) -> list[int]:
        return [random.randint(TOKENS[0], highest_token) for _ in range(blocks * a.block_size + 1)]

    prompt, traffic, probe = tokens(PREFIX_BLOCKS), tokens(1), tokens(1)
    trigger = scenario.trigger
    a.ask(prompt)
    b.ask(prompt[: SHARED_BLOCKS * a.block_size + 1])
    time.sleep(settle)
    tell(f"warm: {a.name} has the prefix, {b.name} half of it")
    tell(f"trigger: {trigger} on {a.name}: {a.wipe(trigger, traffic)}")
    if trigger in (Trigger.RESET_THEN_TRAFFIC, Trigger.OOM_RESET):
        a.ask(probe)
    time.sleep(settle)
    asleep = trigger.sleep_level is not None and trigger is not Trigger.SLEEP_1_WAKE
    before = {engine.name: engine.counters() for engine in (a, b)}

    def send() -> None:
        url = f"{gateway.rstrip('/')}/v1/completions"
        sent = time.monotonic()
        body = {"model": a.model, "prompt": prompt, "max_tokens": 1, "temperature": 0}
        try:
            answer = requests.post(url, json=body, headers=headers, timeout=_ASK_S)
        except requests.RequestException as error:
            reason = type(error).__name__
            raise KvctlError(
                f"the gateway {gateway} does not answer: {reason}", remedy="is it up?"
            ) from None
        _log.debug(exchange("POST", url, str(answer.status_code), time.monotonic() - sent))
        if not answer.ok:
            raise KvctlError(
                f"the gateway {gateway} answers {answer.status_code} to a completion",
                remedy="does it serve the model, and take token ids?",
            )

    a.while_waking(send, asleep=asleep)
    served = a.served(before[a.name], b, before[b.name], len(prompt))
    chosen, other = (a, b) if served is a else (b, a)
    hits = chosen.counters().hits - before[chosen.name].hits
    tell(f"counters: {chosen.name} served it, with {hits} of {len(prompt)} tokens cached")
    rest = other.ask(prompt, a.wake if asleep and other is a else None)
    tell(f"counters: {other.name} had {rest} of {len(prompt)}")
    return CellResult(scenario, chosen.name, "gateway", gateway, None, hits, rest, tuple(story))
