"""Which events a reader wants to see."""

from __future__ import annotations

from dataclasses import dataclass

from kvctl.events.model import BlockRemoved, BlockStored, Event, event_type, hash_text

GPU = "GPU"


@dataclass(frozen=True)
class EventFilter:
    """Every condition that is set must hold; an empty one holds for every event.

    ``types`` are event types, ``loras`` LoRA names (`""` for the base model), ``media`` media
    (`GPU` also for events that name none), ``hashes`` the beginnings of block hashes as printed,
    which may stand for the parent too.
    """

    types: frozenset[str] = frozenset()
    loras: frozenset[str] = frozenset()
    media: frozenset[str] = frozenset()
    hashes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.types or self.loras or self.media or self.hashes)

    def wants(self, event: Event) -> bool:
        """Whether the event passes. Events without LoRA, medium or hash fail those conditions."""
        if self.types and event_type(event) not in self.types:
            return False
        if self.loras and not (
            isinstance(event, BlockStored) and (event.lora_name or "") in self.loras
        ):
            return False
        if self.media and not (
            isinstance(event, (BlockStored, BlockRemoved))
            and (event.medium or GPU).upper() in self.media
        ):
            return False
        return not self.hashes or self._names_hash(event)

    def _names_hash(self, event: Event) -> bool:
        if not isinstance(event, (BlockStored, BlockRemoved)):
            return False
        named = list(event.block_hashes)
        if isinstance(event, BlockStored) and event.parent_block_hash is not None:
            named.append(event.parent_block_hash)
        return any(hash_text(block_hash).startswith(self.hashes) for block_hash in named)
