"""vLLM's own block hash, recomputed: sha256 over a pickled (parent, tokens, extra keys).

So since vLLM 0.29 with `--prefix-caching-hash-algo sha256`, its default (`kv_cache_utils`): the
root's parent no longer depends on the process, and equal prefixes have equal hashes everywhere.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Sequence
from typing import Any, TypeAlias

Digest: TypeAlias = bytes
"""32 bytes; an event may carry the last eight of them as an int."""


def _digest(value: Any) -> Digest:
    return hashlib.sha256(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)).digest()


ROOT_DIGEST = _digest("vllm-none-hash")
"""Parent of every first block (vLLM 0.29 ``kv_cache_utils.init_none_hash``)."""


def block_digest(
    parent: Digest, token_ids: Sequence[int], extra_keys: Sequence[Any], lora: str | None
) -> Digest:
    """The digest of one block behind its parent.

    ``extra_keys`` are the event's for this block: the LoRA's name and salts as bare strings. Others
    (multimodal, embeddings) are hashed in a way of their own: see `can_be_recomputed`. vLLM 0.32
    hashes a LoRA's path as well, which no event tells: its blocks come out otherwise there.
    """
    return _digest((parent, tuple(token_ids), _tagged(extra_keys, lora)))


def can_be_recomputed(extra_keys: Sequence[Any]) -> bool:
    """Whether the extra keys are of the kinds that are hashed as they stand."""
    return all(isinstance(key, str) for key in extra_keys)


def _tagged(extra_keys: Sequence[Any], lora: str | None) -> tuple[tuple[str, Any], ...] | None:
    tagged = tuple(
        ("lora" if number == 0 and key == lora else "cache_salt", key)
        for number, key in enumerate(extra_keys)
    )
    return tagged or None
