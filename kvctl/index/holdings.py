"""What one engine (pod, DP rank) is believed to hold, kept under its events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvctl.events import BlockHash, BlockRemoved, BlockStored
from kvctl.index.content import Content, is_anchored
from kvctl.index.model import Entry
from kvctl.index.policy import Removals
from kvctl.index.spans import lora_of, medium_of, named_of, span_of

FULL_ATTENTION = "full_attention"


class _Copies(NamedTuple):
    """Times and count of an entry that was stored more than once."""

    first: float
    last: float
    copies: int


# An entry's value is the time of its one store, a float that all entries of a batch share; only
# one stored again pays for a `_Copies`. Most entries are stored once: this halves their memory.
_Held = float | _Copies


class Group:
    """One KV-cache group: names of its blocks, and where each is held.

    ``tiers`` is medium -> content -> when stored. ``kind`` is vLLM's `kv_cache_spec_kind`.
    """

    __slots__ = ("block_size", "kind", "names", "tiers")

    def __init__(self) -> None:
        self.names: dict[BlockHash, Content] = {}
        self.tiers: dict[str, dict[Content, _Held]] = {}
        self.kind: str | None = None
        self.block_size = 0

    def holds(self, content: Content) -> bool:
        """Whether any medium holds the block."""
        return any(content in tier for tier in self.tiers.values())


class Holdings:
    """The entries of one (pod, DP rank)."""

    __slots__ = ("_lineage", "_removals", "groups", "loras", "model", "newest", "unanchored")

    def __init__(
        self, model: str, removals: Removals, lineage: dict[Content, Content] | None = None
    ) -> None:
        self.model = model
        self.groups: dict[int, Group] = {}
        self.loras: dict[Content, str] = {}
        self.unanchored = 0
        self.newest: float | None = None
        self._removals = removals
        self._lineage = lineage

    @property
    def entries(self) -> int:
        """How many entries there are, over all groups and media."""
        return sum(len(tier) for group in self.groups.values() for tier in group.tiers.values())

    def store(self, event: BlockStored, stored: float) -> int:
        """Add what the event stores at engine time ``stored``; returns how many entries are new."""
        group = self.groups.get(event.group_idx or 0)
        if group is None:
            group = self.groups[event.group_idx or 0] = Group()
        group.kind = event.kv_cache_spec_kind
        group.block_size = max(group.block_size, event.block_size)
        lora = lora_of(event)
        contents = self._contents(event, group, lora)
        tier = group.tiers.setdefault(medium_of(event.medium), {})
        self.newest = stored if self.newest is None else max(self.newest, stored)

        names, added = group.names, 0
        for block_hash, content in zip(event.block_hashes, contents, strict=True):
            known = names.get(block_hash)
            if known is None:
                names[block_hash] = content
            elif known != content:
                self._rename(group, block_hash, known, content)
            held = tier.get(content)
            if held is None:
                tier[content] = stored
                added += 1
                if not is_anchored(content):
                    self.unanchored += 1
            elif isinstance(held, _Copies):
                tier[content] = _Copies(held.first, stored, held.copies + 1)
            else:
                tier[content] = _Copies(held, stored, 2)
        if lora is not None:
            self.loras.update(dict.fromkeys(contents, lora))
        return added

    def remove(self, event: BlockRemoved) -> tuple[int, int]:
        """Drop one copy of each named block; returns (entries gone, hashes not known here)."""
        group = self.groups.get(event.group_idx or 0)
        tier = group.tiers.get(medium_of(event.medium)) if group else None
        if group is None or tier is None:
            return 0, len(event.block_hashes)
        gone = strange = 0
        for block_hash in event.block_hashes:
            content = group.names.get(block_hash)
            held = None if content is None else tier.get(content)
            if content is None or held is None:
                strange += 1
            elif self._removals is Removals.COUNT and isinstance(held, _Copies) and held.copies > 1:
                tier[content] = _Copies(held.first, held.last, held.copies - 1)
            else:
                del tier[content]
                gone += 1
                self._forget(group, block_hash, content)
        return gone, strange

    def drop_lora(self, lora: str | None) -> int:
        """Drop the entries under one LoRA (None: the base model), names kept, as AIBrix does."""
        gone = 0
        for group in self.groups.values():
            for tier in group.tiers.values():
                doomed = [content for content in tier if self.loras.get(content) == lora]
                for content in doomed:
                    del tier[content]
                    self.unanchored -= not is_anchored(content)
                gone += len(doomed)
        return gone

    def drop_stored_before(self, cutoff: float) -> int:
        """Drop the entries last stored before engine time ``cutoff``; returns how many."""
        gone = 0
        for group in self.groups.values():
            for block_hash, content in list(group.names.items()):
                for tier in group.tiers.values():
                    held = tier.get(content)
                    if held is not None and _last(held) < cutoff:
                        del tier[content]
                        gone += 1
                        self.unanchored -= not is_anchored(content)
                if not group.holds(content):
                    del group.names[block_hash]
        return gone

    def entries_of(self, pod: str, rank: int) -> Iterator[Entry]:
        """Every entry, in the order of first storing within each group and medium."""
        for number, group in self.groups.items():
            for medium, tier in group.tiers.items():
                for block_hash, content in group.names.items():
                    held = tier.get(content)
                    if held is None:
                        continue
                    yield Entry(
                        pod,
                        rank,
                        self.model,
                        self.loras.get(content),
                        medium,
                        number,
                        block_hash,
                        content,
                        is_anchored(content),
                        held.first if isinstance(held, _Copies) else held,
                        _last(held),
                        held.copies if isinstance(held, _Copies) else 1,
                    )

    def deciding_groups(self) -> list[Group]:
        """The groups that must all hold a prefix for it to match: those of full attention.

        Where the engine does not tell the kinds (vLLM before 0.22) that is the fullest group: a
        full-attention group names every block, the others some of them.
        """
        full = [group for group in self.groups.values() if group.kind == FULL_ATTENTION]
        if full or not self.groups:
            return full
        return [
            min(
                self.groups.items(),
                key=lambda item: (-len(item[1].names), -item[1].block_size, item[0]),
            )[1]
        ]

    def find(self, block_hash: BlockHash) -> Content | None:
        """Identity of the block that this engine calls ``block_hash``, if it is held."""
        for group in self.groups.values():
            content = group.names.get(block_hash)
            if content is not None:
                return content
        return None

    def _contents(self, event: BlockStored, group: Group, lora: str | None) -> list[Content]:
        """Identity of each named block of the event."""
        parent, contents = span_of(event, self.model, lora, lambda name: self._named(name, group))
        if self._lineage is not None and parent is not None:
            self._lineage.update(zip(contents, [parent, *contents[:-1]], strict=True))
        return named_of(event, contents)

    def _named(self, block_hash: BlockHash, group: Group) -> Content | None:
        # A sliding-window group does not name every block: its parent may be another group's.
        return group.names.get(block_hash) or self.find(block_hash)

    def _rename(self, group: Group, block_hash: BlockHash, old: Content, new: Content) -> None:
        """A block known under one identity turns out to be another: an unanchored one anchored."""
        group.names[block_hash] = new
        for tier in group.tiers.values():
            held = tier.pop(old, None)
            if held is not None:
                tier[new] = held
                self.unanchored += is_anchored(old) - is_anchored(new)
        self.loras.pop(old, None)

    def _forget(self, group: Group, block_hash: BlockHash, content: Content) -> None:
        self.unanchored -= not is_anchored(content)
        if len(group.tiers) == 1 or not group.holds(content):
            del group.names[block_hash]
            if self.loras and not any(other.holds(content) for other in self.groups.values()):
                self.loras.pop(content, None)


def _last(held: _Held) -> float:
    return held.last if isinstance(held, _Copies) else held
