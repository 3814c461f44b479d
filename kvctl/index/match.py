"""Prefix match: how many leading blocks of a prompt each pod holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvctl.index.content import (
    Content,
    chain,
    chain_with_extras,
    pack_blocks,
    pack_extra_keys,
    root,
)
from kvctl.index.holdings import Group, Holdings
from kvctl.index.model import GPU, PodMatch, Prompt


def match_holdings(
    streams: Mapping[tuple[str, int], Holdings], wanted: Prompt | Sequence[Content]
) -> dict[str, PodMatch]:
    """The best match of each pod over its DP ranks.

    ``wanted`` is a prompt, cut to each engine's own block size, or the identities of its blocks.
    """
    chains: dict[tuple[str, int], list[Content]] = {}
    best: dict[str, PodMatch] = {}
    for (pod, rank), holdings in sorted(streams.items(), key=lambda item: item[0]):
        groups = holdings.deciding_groups()
        size = max((group.block_size for group in groups), default=0)
        if isinstance(wanted, Prompt):
            key = (holdings.model if wanted.model is None else wanted.model, size)
            if key not in chains:
                chains[key] = prompt_contents(wanted, *key)
            contents: Sequence[Content] = chains[key]
            other_model = key[0] != holdings.model
        else:
            contents, other_model = wanted, False
        held = 0 if other_model else _run(groups, contents, gpu_only=True)
        anywhere = 0 if other_model else _run(groups, contents, gpu_only=False)
        found = PodMatch(pod, rank, len(contents), held, anywhere, size)
        if pod not in best or (found.blocks, anywhere) > (
            best[pod].blocks,
            best[pod].blocks_any_medium,
        ):
            best[pod] = found
    return best


def prompt_contents(prompt: Prompt, model: str, block_size: int) -> list[Content]:
    """Identities of the whole blocks of a prompt; the tokens left over make no block."""
    if block_size <= 0:
        return []
    blocks = pack_blocks(prompt.token_ids, block_size)
    start = root(model, prompt.lora)
    extra = pack_extra_keys(prompt.first_extra_keys, prompt.lora)
    if not extra or not blocks:
        return chain(start, blocks)
    return chain_with_extras(start, blocks, [extra] + [b""] * (len(blocks) - 1))


def _run(groups: Sequence[Group], contents: Sequence[Content], *, gpu_only: bool) -> int:
    if not groups:
        return 0
    run = len(contents)
    for group in groups:
        tiers = [tier for medium, tier in group.tiers.items() if medium == GPU or not gpu_only]
        for number, content in enumerate(contents[:run]):
            if not any(content in tier for tier in tiers):
                run = number
                break
    return run
