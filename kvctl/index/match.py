"""Prefix match: how many leading blocks of a prompt each pod holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from operator import attrgetter, itemgetter
from typing import Protocol, TypeVar

from kvctl.index.content import (
    Content,
    chain,
    chain_with_extras,
    pack_blocks,
    pack_extra_keys,
    root,
)
from kvctl.index.model import GPU, PodMatch, Prompt

FULL_ATTENTION = "full_attention"
_block_size = attrgetter("block_size")


class MatchedMedium(Protocol):
    """The blocks in one medium."""

    def leading(self, contents: Sequence[Content]) -> int:
        """How many are held, from the first on, without a gap."""
        ...

    def covered(self, contents: Sequence[Content]) -> list[bool]:
        """Of each, whether it is held."""
        ...


class MatchedGroup(Protocol):
    """One KV-cache group of an engine; ``kind`` is vLLM's `kv_cache_spec_kind`."""

    @property
    def kind(self) -> str | None:
        """What the engine calls the group, if it does."""
        ...

    @property
    def block_size(self) -> int:
        """Tokens to a block, 0 if never told."""
        ...

    @property
    def named(self) -> int:
        """How many blocks the group names."""
        ...

    @property
    def tiers(self) -> Mapping[str, MatchedMedium]:
        """What is held, by medium."""
        ...


_Group = TypeVar("_Group", bound=MatchedGroup)


class MatchedStream(Protocol):
    """What one engine holds."""

    @property
    def model(self) -> str:
        """The model it serves."""
        ...

    @property
    def groups(self) -> Mapping[int, MatchedGroup]:
        """Its KV-cache groups."""
        ...


def match_holdings(
    streams: Mapping[tuple[str, int], MatchedStream], wanted: Prompt | Sequence[Content]
) -> dict[str, PodMatch]:
    """The best match of each pod over its DP ranks.

    ``wanted`` is a prompt, cut to each engine's own block size, or the identities of its blocks.
    """
    cuts: dict[tuple[str, int], list[Content]] = {}
    best: dict[str, PodMatch] = {}
    for (pod, rank), holdings in sorted(streams.items(), key=itemgetter(0)):
        model = holdings.model
        groups = deciding_groups(holdings.groups)
        # A match is asked for each request: mostly there is one group to look at.
        one = len(groups) == 1
        size = groups[0].block_size if one else max(map(_block_size, groups), default=0)
        if isinstance(wanted, Prompt):
            asked = model if wanted.model is None else wanted.model
            contents: Sequence[Content] | None = cuts.get((asked, size))
            if contents is None:
                contents = cuts[asked, size] = prompt_contents(wanted, asked, size)
        else:
            contents, asked = wanted, model
        held, anywhere = _runs(groups, contents) if asked == model else (0, 0)
        known = best.get(pod)
        if known is None or (held, anywhere) > (known.blocks, known.blocks_any_medium):
            best[pod] = PodMatch(pod, rank, len(contents), held, anywhere, size)
    return best


def prompt_contents(prompt: Prompt, model: str, block_size: int) -> list[Content]:
    """Identities of the whole blocks of a prompt; the tokens left over make no block."""
    if block_size <= 0:
        return []
    start = root(model, prompt.lora)
    extra = pack_extra_keys(prompt.first_extra_keys, prompt.lora)
    if not extra:
        return chain(start, prompt.token_ids, block_size)
    return chain_with_extras(start, pack_blocks(prompt.token_ids, block_size), [extra])


def deciding_groups(groups: Mapping[int, _Group]) -> list[_Group]:
    """The groups that must all hold a prefix for it to match: those of full attention.

    Where the engine does not tell the kinds (vLLM before 0.22) that is the fullest group: a
    full-attention group names every block, the others some of them.
    """
    if len(groups) < 2:
        return list(groups.values())
    full = [group for group in groups.values() if group.kind == FULL_ATTENTION]
    if full:
        return full
    return [min(groups.items(), key=lambda item: (-item[1].named, -item[1].block_size, item[0]))[1]]


def _runs(groups: Sequence[MatchedGroup], contents: Sequence[Content]) -> tuple[int, int]:
    """How many leading blocks all groups hold: in GPU memory, and in any medium."""
    if len(groups) == 1:
        return _runs_in(groups[0].tiers, contents)
    found = [_runs_in(group.tiers, contents) for group in groups]
    return min((run for run, _ in found), default=0), min((run for _, run in found), default=0)


def _runs_in(media: Mapping[str, MatchedMedium], contents: Sequence[Content]) -> tuple[int, int]:
    gpu = media.get(GPU)
    in_gpu = 0 if gpu is None else gpu.leading(contents)
    if gpu is not None and len(media) == 1:
        return in_gpu, in_gpu
    covered = zip(*(each.covered(contents) for each in media.values()), strict=True)
    return in_gpu, sum(1 for _ in takewhile(any, covered))
