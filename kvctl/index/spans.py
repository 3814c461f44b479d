"""What a `BlockStored` names: the identity of each block of its span."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from kvctl.events import BlockHash, BlockStored
from kvctl.index.content import (
    Content,
    chain,
    chain_with_extras,
    pack_blocks,
    pack_extra_keys,
    root,
    unknown_parent,
    untold,
)
from kvctl.index.model import GPU

Find = Callable[[BlockHash], Content | None]
"""The identity of the block that the engine calls so, if it is held."""


def lora_of(event: BlockStored) -> str | None:
    """The LoRA's identity: its name; its id as text for the versions that send no name."""
    if event.lora_name is not None:
        return event.lora_name
    return None if event.lora_id is None else f"#{event.lora_id}"


@lru_cache(64)
def medium_of(medium: str | None) -> str:
    """A medium by its usual name; none told means GPU."""
    return (medium or GPU).upper()


def parent_of(event: BlockStored, model: str, lora: str | None, find: Find) -> Content:
    """The identity of the block before the span, or of the empty prefix."""
    hash_before = event.parent_block_hash
    if hash_before is None:
        return root(model, lora)
    return find(hash_before) or unknown_parent(model, lora, hash_before)


def span_of(event: BlockStored, parent: Content, lora: str | None) -> list[Content]:
    """The identities of all blocks of a span with tokens, the named ones last."""
    # vLLM sends a list of None where there are none.
    if event.extra_keys and any(event.extra_keys):
        blocks = pack_blocks(event.token_ids, event.block_size)
        extras = _extras(event, len(blocks), lora)
        if any(extras):
            return chain_with_extras(parent, blocks, extras)
    return chain(parent, event.token_ids, event.block_size)


def untold_of(event: BlockStored, model: str, lora: str | None, find: Find) -> list[Content]:
    """The identities of the blocks of an event without tokens (offload tiers): those known by
    their hash, or else told apart by it."""
    return [
        find(block_hash) or untold(model, lora, block_hash) for block_hash in event.block_hashes
    ]


def named_of(event: BlockStored, contents: list[Content]) -> list[Content]:
    """Of a span's blocks those that the event gives hashes to: the last ones."""
    unnamed = len(contents) - len(event.block_hashes)
    return contents[unnamed:] if unnamed else contents


def _extras(event: BlockStored, blocks: int, lora: str | None) -> list[bytes]:
    """Packed extra keys for the blocks of the span.

    The wire has one per *named* block: those of the blocks before are not told.
    """
    keys = (event.extra_keys or [])[: len(event.block_hashes)]
    before = [b""] * (blocks - len(event.block_hashes))
    return before + [pack_extra_keys(key, lora) for key in keys]


def model_of(topic: bytes) -> str:
    """The model that a topic of the form `kv@<pod>@<model>` names (llm-d's convention)."""
    kind, _, rest = topic.decode(errors="replace").partition("@")
    _, separator, model = rest.partition("@")
    return model if kind == "kv" and separator else ""
