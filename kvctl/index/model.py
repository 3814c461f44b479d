"""What an index tells: entries, summaries and matches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from kvctl.events import BlockHash, hash_text

GPU = "GPU"


@dataclass(frozen=True)
class Traits:
    """What an index tells of its entries: a router keeps less than kvctl does.

    ``contents`` are identities as `kvctl.index.content` makes them; without them a block has only
    the engine's name, and of that perhaps only the last 64 bits; without ``engine_hashes`` only
    the router's. ``times`` are the engine's clock. ``pod_names`` are kvctl's own, which are
    certain; a router's may be another name of the same pod.
    """

    ranks: bool = True
    contents: bool = True
    groups: bool = True
    times: bool = True
    engine_hashes: bool = True
    pod_names: bool = True


@dataclass(frozen=True, slots=True)
class Entry:
    """The claim that a pod holds a block in a medium.

    ``content`` is the block's identity (`kvctl.index.content`), ``block_hash`` the engine's name
    for it. ``first_stored`` and ``last_stored`` are the engine's clock, seconds. ``references``
    counts physical copies. ``speculative`` marks what a router assumes and no event has told.
    ``other_hashes`` are what other engines call the block, where it is not told which is whose.
    What the index does not tell (`Traits`) is None.
    """

    pod: str
    rank: int | None
    model: str
    lora: str | None
    medium: str
    group: int
    block_hash: BlockHash | None
    content: bytes | None
    anchored: bool
    first_stored: float | None
    last_stored: float | None
    references: int
    speculative: bool = False
    other_hashes: tuple[BlockHash, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; hashes as text; what is not known is absent, as the base model's LoRA is."""
        told = {
            "pod": self.pod,
            "rank": self.rank,
            "model": self.model,
            "lora": self.lora,
            "medium": self.medium,
            "group": self.group,
            "block_hash": None if self.block_hash is None else hash_text(self.block_hash),
            "content": None if self.content is None else self.content.hex(),
            "anchored": self.anchored,
            "first_stored": self.first_stored,
            "last_stored": self.last_stored,
            "references": self.references,
            "speculative": self.speculative or None,
        }
        return {name: value for name, value in told.items() if value is not None}


@dataclass(frozen=True)
class StreamSummary:
    """What the index holds for one (pod, DP rank), or for a pod where it tells no ranks (None).

    All counts are of entries.
    """

    pod: str
    rank: int | None
    model: str
    entries: int
    unanchored: int
    media: dict[str, int]
    loras: dict[str, int]
    newest: float | None
    """Engine time of the latest store still held, None for no entry."""


@dataclass(frozen=True)
class StreamFacts:
    """What an index knows of one (pod, DP rank) besides its entries, to judge them by.

    ``oldest`` and ``newest`` are when its entries were last stored, ``last_ts`` and ``last_clear``
    the last batch and the last clear or restart taken in: all engine time. ``last_gap`` is our
    clock at the last gap that was not filled. None where there is no such thing, and for
    ``rank`` where the index does not tell ranks apart.
    """

    pod: str
    rank: int | None
    entries: int
    oldest: float | None = None
    newest: float | None = None
    last_ts: float | None = None
    last_clear: float | None = None
    last_gap: float | None = None
    block_size: int | None = None
    """Tokens in a block as the index counts them, where that was told to it."""


@dataclass(frozen=True)
class IndexSummary:
    """The whole index. ``blocks`` counts distinct blocks, by content."""

    blocks: int
    streams: tuple[StreamSummary, ...]

    @property
    def entries(self) -> int:
        """Entries of all pods."""
        return sum(stream.entries for stream in self.streams)

    def to_dict(self) -> dict[str, Any]:
        """The `index` object of `replay -o json` (DESIGN, Output)."""
        pods: dict[str, dict[str, Any]] = {}
        for stream in self.streams:
            pod = pods.setdefault(
                stream.pod,
                {
                    "entries": 0,
                    "unanchored": 0,
                    "models": {},
                    "media": {},
                    "loras": {},
                    "ranks": {},
                },
            )
            pod["entries"] += stream.entries
            pod["unanchored"] += stream.unanchored
            _add(pod["models"], {stream.model: stream.entries})
            _add(pod["media"], stream.media)
            _add(pod["loras"], stream.loras)
            if stream.rank is not None:
                _add(pod["ranks"], {str(stream.rank): stream.entries})
        return {"blocks": self.blocks, "entries": self.entries, "pods": pods}


def _add(total: dict[str, int], more: dict[str, int]) -> None:
    for name, count in more.items():
        total[name] = total.get(name, 0) + count


class PodMatch(Struct, frozen=True):
    """How much of a prompt one pod holds, from its first block on.

    ``blocks`` counts leading blocks in GPU memory; ``blocks_any_medium`` goes on through
    offloaded ones. For a pod of several DP ranks it is that of its best, ``rank`` (None where the
    index does not tell ranks).
    """

    pod: str
    rank: int | None
    prompt_blocks: int
    blocks: int
    blocks_any_medium: int
    block_size: int

    @property
    def tokens(self) -> int:
        """Matched tokens in GPU memory."""
        return self.blocks * self.block_size

    @property
    def percent(self) -> int:
        """Matched share of the prompt's whole blocks, rounded down as AIBrix does."""
        return self.blocks * 100 // self.prompt_blocks if self.prompt_blocks else 0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; `blocks_any_medium` only where offloaded blocks lengthen the match."""
        more = (
            {"blocks_any_medium": self.blocks_any_medium}
            if self.blocks_any_medium > self.blocks
            else {}
        )
        rank = {} if self.rank is None else {"rank": self.rank}
        return {
            "blocks": self.blocks,
            "tokens": self.tokens,
            "percent": self.percent,
            **rank,
            **more,
        }


@dataclass(frozen=True)
class Prompt:
    """What to look for: token ids, and what else is part of a block's identity.

    ``model`` None matches each pod under its own model. ``first_extra_keys`` are the extra keys
    of the first block, a cache_salt for one.
    """

    token_ids: tuple[int, ...]
    model: str | None = None
    lora: str | None = None
    first_extra_keys: tuple[Any, ...] = field(default=())
