"""The plainest router: the pod with the longest prefix match."""

from __future__ import annotations

from collections.abc import Mapping

from kvctl.index import PodMatch
from kvctl.router.choice import Choice

LONGEST = "longest prefix"


def choose_longest(matches: Mapping[str, PodMatch]) -> Choice:
    """The pod that holds most leading blocks in GPU memory.

    Among equals the one that goes on longest in other media, then the first by name.
    """
    ranked = sorted(
        matches.values(), key=lambda match: (-match.blocks, -match.blocks_any_medium, match.pod)
    )
    if not ranked or not ranked[0].prompt_blocks:
        return Choice(None, "the prompt has no whole block to match")
    best = ranked[0]
    if not best.blocks_any_medium:
        return Choice(None, "no pod holds the first block")
    why = f"holds {best.blocks} of {best.prompt_blocks} blocks"
    if best.blocks_any_medium > best.blocks:
        why += f", {best.blocks_any_medium} with offloaded ones"
    if len(ranked) > 1:
        second = ranked[1]
        tie = (second.blocks, second.blocks_any_medium) == (best.blocks, best.blocks_any_medium)
        why += (
            f", as many as {second.pod}: the first by name"
            if tie
            else f", {second.pod} {second.blocks}"
        )
    return Choice(best.pod, why, LONGEST)
