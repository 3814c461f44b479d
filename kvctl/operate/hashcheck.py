"""Whether a stream's block hashes follow from its tokens."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvctl.events import BlockHash, BlockStored
from kvctl.events.enginehash import ROOT_DIGEST, Digest, block_digest, can_be_recomputed

_SHA256 = 32


@dataclass
class HashCheck:
    """Recomputes every block whose chain was seen from its root; counts how it went.

    ``checked`` blocks could be recomputed, ``wrong`` of them have another hash than they should.
    """

    checked: int = 0
    wrong: int = 0
    _digests: dict[BlockHash, Digest] = field(default_factory=dict)

    def take(self, event: BlockStored) -> None:
        """Take a store in. Left out are a LoRA's, whose path is hashed too and told by no event,
        and hashes of another length than sha256's."""
        if event.lora_name is not None or event.lora_id is not None:
            return
        if any(isinstance(name, bytes) and len(name) != _SHA256 for name in event.block_hashes):
            return
        blocks = len(event.token_ids) // event.block_size if event.block_size > 0 else 0
        names: list[BlockHash | None] = [None] * (blocks - len(event.block_hashes))
        names += event.block_hashes
        if not blocks or len(names) != blocks:
            return
        parent: Digest | None = ROOT_DIGEST
        if event.parent_block_hash is not None:
            parent = self._digests.get(event.parent_block_hash)
        extras = event.extra_keys or []
        for number, name in enumerate(names):
            at = number - (blocks - len(event.block_hashes))
            extra = (extras[at] if 0 <= at < len(extras) else None) or []
            if parent is None or not can_be_recomputed(extra):
                return
            tokens = event.token_ids[number * event.block_size : (number + 1) * event.block_size]
            parent = block_digest(parent, tokens, extra, event.lora_name)
            if name is None:
                continue
            self.checked += 1
            if name != _named(parent, name):
                self.wrong += 1
                return  # nothing behind it can be right
            self._digests[name] = parent


def _named(digest: Digest, like: BlockHash) -> BlockHash:
    """The digest in the form of another hash."""
    if isinstance(like, bytes):
        return digest
    return int.from_bytes(digest[-8:], "big")
