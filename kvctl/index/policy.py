"""How an index takes clears, restarts and removes: as kvctl does, or as a given router does."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kvctl.errors import UsageError


class Clears(Enum):
    """What an `AllBlocksCleared` removes."""

    ALL = "all"
    IGNORED = "ignored"
    ONE_LORA = "one-lora"


class Removals(Enum):
    """What one `BlockRemoved` means for a block stored twice.

    ``COUNT``: one physical copy left, the entry goes with the last (vLLM to 0.33). ``FIRST``: the
    engine reports only the last copy's leaving, so the entry goes at once.
    """

    COUNT = "count"
    FIRST = "first"


@dataclass(frozen=True)
class Policy:
    """What a clear and a restart do to the entries of their (pod, DP rank)."""

    name: str
    clears: Clears
    restarts_purge: bool


POLICIES = {
    policy.name: policy
    for policy in (
        Policy("purge", Clears.ALL, restarts_purge=True),
        # AIBrix before PR #2385: ignores clears, and does not notice a seq that goes back.
        Policy("noop", Clears.IGNORED, restarts_purge=False),
        # AIBrix since PR #2385: a clear removes the context of one LoRA (the pod label's) only.
        Policy("aibrix", Clears.ONE_LORA, restarts_purge=False),
    )
}
"""By name: `purge` (right), `noop` (AIBrix before PR #2385), `aibrix` (since)."""

PURGE = POLICIES["purge"]


def policy(name: str) -> Policy:
    """The policy of that name; raises `UsageError` that lists them."""
    try:
        return POLICIES[name]
    except KeyError:
        raise UsageError(
            f"there is no policy {name!r}", remedy=f"choose one of {', '.join(POLICIES)}"
        ) from None
