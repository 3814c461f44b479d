"""llm-d's request keys: the name of a block by its model and tokens.

A key is the FNV-1a digest, 64 bits, of canonical CBOR of [parent key, tokens, extra]. The chain
of a model begins at that of [digest of the seed, null, model]; a LoRA stands in for the model
(llm-d-kv-cache, kvblock/token_processor.go, algorithm `fnv64a`, the default).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cbor2

_OFFSET = 0xCBF29CE484222325
_PRIME = 0x100000001B3
_64 = 0xFFFF_FFFF_FFFF_FFFF


def fnv1a_64(data: bytes) -> int:
    """The FNV-1a digest of 64 bits."""
    digest = _OFFSET
    for byte in data:
        digest = (digest ^ byte) * _PRIME & _64
    return digest


def model_key(seed: str, model: str) -> int:
    """The key that the first block of a model (or of a LoRA, by its name) has as its parent."""
    return _digest(fnv1a_64(seed.encode()), None, model)


def request_keys(
    parent: int,
    token_ids: Sequence[int],
    block_size: int,
    extras: Sequence[Any] | None = None,
) -> list[int]:
    """The keys of the whole blocks behind ``parent``; ``extras`` has one per block, or is None."""
    keys = []
    for number, at in enumerate(range(0, len(token_ids) - block_size + 1, block_size)):
        extra = None if extras is None else extras[number]
        parent = _digest(parent, list(token_ids[at : at + block_size]), extra)
        keys.append(parent)
    return keys


def multimodal_extra(extra_keys: Sequence[Any] | None) -> list[dict[str, Any]] | None:
    """What of a block's extra keys llm-d takes into its key: pairs of a hash and an offset.

    Everything else, a cache_salt for one, it leaves out (kvblock/extra_keys.go).
    """
    pairs = [
        {"Hash": each[0], "Offset": each[1]}
        for each in extra_keys or ()
        if isinstance(each, (list, tuple))
        and len(each) == 2
        and isinstance(each[0], str)
        and isinstance(each[1], int)
    ]
    return pairs or None


def _digest(parent: int, tokens: list[int] | None, extra: Any) -> int:
    return fnv1a_64(cbor2.dumps([parent, tokens, extra], canonical=True))
