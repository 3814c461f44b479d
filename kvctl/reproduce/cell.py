"""One cell of the experiment, from the warm prefix to the verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from random import Random

from kvctl.events import Record
from kvctl.reproduce.engines import Engine
from kvctl.reproduce.gateway import ModelGateway
from kvctl.reproduce.scenario import CellResult, Scenario, Trigger

PREFIX_BLOCKS = 4
SHARED_BLOCKS = 2
"""So much of the prefix pod B holds too: what a right choice saves."""

TOKENS = (5, 30_000)
"""The range prompts are drawn from."""


def run_cell(
    scenario: Scenario,
    a: Engine,
    b: Engine,
    *,
    router: str = "aibrix",
    seed: int = 0,
    lora: str | None = None,
    keep: Callable[[Record], None] = lambda _record: None,
    highest_token: int = TOKENS[1],
) -> CellResult:
    """Warm a prefix on A and half of it on B, wipe A, and see where the prefix goes then.

    Which pod had what is told by the engines' counters: the chosen one is asked first, the other
    after it. Raises `KvctlError` where an engine does not do as it is told.
    """
    story: list[str] = []
    began = time.monotonic()

    def tell(text: str) -> None:
        story.append(f"{time.monotonic() - began:6.2f}s  {text}")

    random = Random(seed)

    def tokens(blocks: int) -> list[int]:
        return [random.randint(TOKENS[0], highest_token) for _ in range(blocks * a.block_size + 1)]

    prompt, traffic, probe = tokens(PREFIX_BLOCKS), tokens(1), tokens(1)
    shared = prompt[: SHARED_BLOCKS * a.block_size + 1]
    trigger = scenario.trigger
    with ModelGateway(
        (a, b), scenario, router=router, seed=seed, lora=lora, tell=tell, keep=keep
    ) as gateway:
        _warm(gateway, a, b, prompt, shared, tell)
        gateway.reconcile()
        gateway.lose_clears()
        tell(f"trigger: {trigger} on {a.name}: {a.wipe(trigger, traffic)}")
        if trigger.driven:
            gateway.purge_at_once(a.name, trigger.sleep_level)
        if trigger in (Trigger.RESET_THEN_TRAFFIC, Trigger.OOM_RESET):
            a.ask(probe)
            tell(f"traffic: another request makes {a.name} step")
        gateway.catch_up(stepped=a.name if trigger.steps else None)
        gateway.reconcile()
        claimed = gateway.claimed_blocks(a.name, prompt)
        choice = gateway.route(prompt)
        tell(f"router: sends the prefix to {choice.pod}: {choice.rule}; {choice.why}")
        chosen, other = (a, b) if choice.pod == a.name else (b, a)
        hits = {}
        for engine in (chosen, other):
            asleep = engine is a and trigger.sleep_level is not None
            asleep = asleep and trigger is not Trigger.SLEEP_1_WAKE
            hits[engine.name] = engine.ask(prompt, a.wake if asleep else None)
            woken = " (it had to be woken for it)" if asleep else ""
            tell(
                f"counters: {engine.name} had {hits[engine.name]} of {len(prompt)} tokens "
                f"cached{woken}"
            )
        gateway.catch_up()
    stale = max(0, claimed - hits[a.name] // a.block_size)
    return CellResult(
        scenario,
        chosen.name,
        choice.rule,
        choice.why,
        stale,
        hits[chosen.name],
        hits[other.name],
        tuple(story),
    )


def _warm(
    gateway: ModelGateway,
    a: Engine,
    b: Engine,
    prompt: Sequence[int],
    shared: Sequence[int],
    tell: Callable[[str], None],
) -> None:
    """A has the whole prefix, B the first half, and the index knows it."""
    gateway.catch_up()
    a.ask(prompt)
    gateway.assume(prompt, a.name)
    gateway.catch_up(stepped=a.name)
    b.ask(shared)
    gateway.catch_up(stepped=b.name)
    again = a.ask(prompt)
    gateway.catch_up()
    tell(
        f"warm: {a.name} has {again} of {len(prompt)} tokens of the prefix cached, by its counters"
    )
    tell(
        f"warm: the index says {a.name} {gateway.claimed_blocks(a.name, prompt)} blocks, "
        f"{b.name} {gateway.claimed_blocks(b.name, prompt)}"
    )
