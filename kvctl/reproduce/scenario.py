"""What a cell of the experiment is made of: a trigger, a delivery, a handler."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Trigger(StrEnum):
    """What happens to pod A between two prompts of the same prefix."""

    RESET_IDLE = "reset-idle"
    """`POST /reset_prefix_cache` on an idle engine, which takes no step afterwards."""
    RESET_THEN_TRAFFIC = "reset-then-traffic"
    """The same, and another request makes it step."""
    RESET_RUNNING = "reset-running"
    """The same with `reset_running_requests`, while a request runs, which goes on to its end."""
    SLEEP_1 = "sleep-1"
    """`POST /sleep?level=1`: the prompt finds it asleep."""
    SLEEP_2 = "sleep-2"
    """`POST /sleep?level=2`."""
    SLEEP_1_WAKE = "sleep-1-wake"
    """It sleeps and wakes between two scrapes."""
    OOM_RESET = "oom-reset"
    """The engine runs out of memory, wipes its cache by itself and goes on serving."""
    RESTART = "restart"
    """The engine's process begins anew, under the same name and ports."""
    SLEEP_0 = "sleep-0"
    """`POST /sleep?level=0`: a control. The cache is kept, so that a purge would be wrong."""
    NO_TRIGGER = "no-trigger"
    """Nothing happens: a control."""

    @property
    def sleep_level(self) -> int | None:
        """The level of its sleep, None where it does not sleep."""
        return {
            Trigger.SLEEP_0: 0,
            Trigger.SLEEP_1: 1,
            Trigger.SLEEP_1_WAKE: 1,
            Trigger.SLEEP_2: 2,
        }.get(self)

    @property
    def wipes(self) -> bool:
        """Whether the engine loses its cache by it."""
        return self not in (Trigger.SLEEP_0, Trigger.NO_TRIGGER)

    @property
    def driven(self) -> bool:
        """Whether somebody calls for it, and so could purge at once."""
        return self not in (Trigger.OOM_RESET, Trigger.RESTART, Trigger.NO_TRIGGER)

    @property
    def steps(self) -> bool:
        """Whether the engine takes a step afterwards, and so may tell of it."""
        return self in (Trigger.RESET_THEN_TRAFFIC, Trigger.RESET_RUNNING, Trigger.OOM_RESET)

    @property
    def real(self) -> bool:
        """Whether a real engine can be made to do it through its API."""
        return self not in (Trigger.OOM_RESET, Trigger.RESTART)


class Delivery(StrEnum):
    """What becomes of the batch with the clear."""

    DELIVERED = "delivered"
    LOST = "lost"
    """Dropped on the way, as ZeroMQ does at a high-water mark or a reconnect."""


class Handler(StrEnum):
    """What the router does about a wiped cache."""

    NOOP = "noop"
    """Ignores clears: AIBrix before PR #2385."""
    EVENT = "event"
    """Purges on a clear: PR #2385."""
    RECONCILE = "event+reconcile"
    """Also reconciles against scraped engine states: what issue #2287 still lacks."""
    FULL = "event+reconcile+sync"
    """Also, whoever drives a reset or a sleep purges at once."""
    BLIND = "blind"
    """The same, but purges at any sleep, even at level 0: what a wrong purge costs."""

    GATEWAY = "gateway"
    """Whatever a real gateway does."""

    @property
    def heeds_clears(self) -> bool:
        """Whether a clear purges."""
        return self is not Handler.NOOP

    @property
    def reconciles(self) -> bool:
        """Whether scraped states are acted on."""
        return self in (Handler.RECONCILE, Handler.FULL, Handler.BLIND)

    @property
    def purges_at_once(self) -> bool:
        """Whether the driver purges."""
        return self in (Handler.FULL, Handler.BLIND)


HANDLERS = (Handler.NOOP, Handler.EVENT, Handler.RECONCILE, Handler.FULL)
"""The columns of the matrix."""


@dataclass(frozen=True)
class Scenario:
    """One cell. ``aibrix_scope``: every purge reaches the context of one LoRA only."""

    trigger: Trigger
    delivery: Delivery
    handler: Handler
    aibrix_scope: bool = False

    @property
    def name(self) -> str:
        """As it stands in a progress line."""
        scope = ", one LoRA" if self.aibrix_scope else ""
        return f"{self.trigger} / {self.delivery} / {self.handler}{scope}"


@dataclass(frozen=True)
class CellResult:
    """What one cell came to, by the engines' counters and the index's state.

    ``stale_entries`` is how many blocks of the prompt the index said pod A holds when it was
    routed, and A had not; None for a gateway, whose index nobody sees. ``hit_tokens`` were cached
    where the prompt went, ``other_hit_tokens`` on the other pod, which was asked afterwards.
    """

    scenario: Scenario
    routed_to: str
    rule: str
    why: str
    stale_entries: int | None
    hit_tokens: int
    other_hit_tokens: int
    story: tuple[str, ...]

    @property
    def cold_miss(self) -> bool:
        """Whether the pod it went to had nothing of the prompt."""
        return self.hit_tokens == 0

    @property
    def lost_tokens(self) -> int:
        """Cached tokens that the other pod had more of."""
        return max(0, self.other_hit_tokens - self.hit_tokens)

    @property
    def is_bug(self) -> bool:
        """Whether the prompt went to the pod that had less of it."""
        return self.lost_tokens > 0

    def to_dict(self) -> dict[str, object]:
        """A row of `reproduce-2287 -o json`."""
        stale = {} if self.stale_entries is None else {"stale_entries": self.stale_entries}
        return {
            "trigger": self.scenario.trigger.value,
            "delivery": self.scenario.delivery.value,
            "handler": self.scenario.handler.value,
            "aibrix_scope": self.scenario.aibrix_scope,
            **stale,
            "routed_to": self.routed_to,
            "cold_miss": self.cold_miss,
            "hit_tokens": self.hit_tokens,
            "lost_tokens": self.lost_tokens,
            "rule": self.rule,
            "verdict": "bug" if self.is_bug else "ok",
        }
