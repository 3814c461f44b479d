"""What one engine (pod, DP rank) is believed to hold, kept under its events."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from kvctl.events import BlockHash, BlockRemoved, BlockStored
from kvctl.index.content import Content, is_anchored
from kvctl.index.model import Entry
from kvctl.index.packed import Packed, content_of, lora_under, pack, pack_together
from kvctl.index.policy import Removals
from kvctl.index.spans import Find, lora_of, medium_of, named_of, parent_of, span_of, untold_of
from kvctl.index.tier import Tier


class Group:
    """One KV-cache group. ``tiers`` is by medium; ``kind`` is vLLM's `kv_cache_spec_kind`."""

    __slots__ = ("block_size", "dropped", "kind", "tiers")

    def __init__(self) -> None:
        self.tiers: dict[str, Tier] = {}
        self.dropped: dict[BlockHash, Packed] = {}
        """Blocks that are no entries any more, and can be parents still (`drop_lora`)."""
        self.kind: str | None = None
        self.block_size = 0

    @property
    def entries(self) -> int:
        """How many entries there are, over all media."""
        return sum(map(len, self.tiers.values()))

    @property
    def named(self) -> int:
        """How many blocks are known by name; looks at all of them where there are several media."""
        if len(self.tiers) == 1 and not self.dropped:
            return self.entries
        return len(set(self.dropped).union(*(tier.held for tier in self.tiers.values())))

    def find(self, block_hash: BlockHash) -> Content | None:
        """Identity of the block of that name, if it is known."""
        for tier in self.tiers.values():
            packed = tier.held.get(block_hash)
            if packed is not None:
                return content_of(packed, block_hash)
        packed = self.dropped.get(block_hash)
        return None if packed is None else content_of(packed, block_hash)


class Holdings:
    """The entries of one (pod, DP rank)."""

    __slots__ = ("_lineage", "_removals", "groups", "model", "newest")

    def __init__(
        self, model: str, removals: Removals, lineage: dict[Content, Content] | None = None
    ) -> None:
        self.model = model
        self.groups: dict[int, Group] = {}
        self.newest: float | None = None
        self._removals = removals
        self._lineage = lineage

    @property
    def entries(self) -> int:
        """How many entries there are, over all groups and media."""
        return sum(group.entries for group in self.groups.values())

    @property
    def unanchored(self) -> int:
        """How many of them do not reach back to a root."""
        return sum(
            tier.unanchored for group in self.groups.values() for tier in group.tiers.values()
        )

    def store(self, event: BlockStored, stored: float) -> int:
        """Add what the event stores at engine time ``stored``; returns how many entries are new."""
        group = self.groups.get(event.group_idx or 0)
        if group is None:
            group = self.groups[event.group_idx or 0] = Group()
        group.kind = event.kv_cache_spec_kind
        if event.block_size > group.block_size:
            group.block_size = event.block_size
        if self.newest is None or stored > self.newest:
            self.newest = stored
        medium = medium_of(event.medium)
        tier = group.tiers.get(medium)
        if tier is None:
            tier = group.tiers[medium] = Tier()
        lora = lora_of(event)
        contents = self._contents(event, group, tier, lora)
        if lora is None and event.token_ids and len(group.tiers) == 1 and not group.dropped:
            packed = pack_together(event.block_hashes, contents, stored)
            if packed is not None:
                return tier.add(event.block_hashes, packed, stored)
        return sum(
            self._add(group, tier, names, packed, stored)
            for names, packed in self._packs(event, contents, stored, lora)
        )

    def _packs(
        self, event: BlockStored, contents: list[Content], stored: float, lora: str | None
    ) -> list[tuple[list[BlockHash], Packed]]:
        if event.token_ids:
            return pack(event.block_hashes, contents, stored, lora)
        # Then the blocks named need not follow each other.
        each = zip(event.block_hashes, contents, strict=True)
        return [pack([name], [content], stored, lora)[0] for name, content in each]

    def _add(
        self, group: Group, tier: Tier, names: list[BlockHash], packed: Packed, stored: float
    ) -> int:
        added = tier.add(names, packed, stored)
        if len(group.tiers) > 1:
            for other in group.tiers.values():
                for name in names:
                    other.correct(name, packed)
        for name in names:
            group.dropped.pop(name, None)
        return added

    def remove(self, event: BlockRemoved) -> tuple[int, int]:
        """Drop one copy of each named block; returns (entries gone, hashes not known here)."""
        group = self.groups.get(event.group_idx or 0)
        tier = group.tiers.get(medium_of(event.medium)) if group else None
        if tier is None:
            return 0, len(event.block_hashes)
        gone = strange = 0
        for block_hash in event.block_hashes:
            if self._removals is Removals.COUNT:
                last = tier.remove_copy(block_hash)
            else:
                last = True if tier.remove(block_hash) is not None else None
            if last is None:
                strange += 1
            else:
                gone += last
        return gone, strange

    def drop_lora(self, lora: str | None) -> int:
        """Drop the entries under one LoRA (None: the base model), names kept, as AIBrix does."""
        gone = 0
        for group in self.groups.values():
            for tier in group.tiers.values():
                doomed = {
                    name: packed for name, packed in tier.held.items() if lora_under(packed) == lora
                }
                for name in doomed:
                    tier.remove(name)
                group.dropped.update(doomed)
                gone += len(doomed)
        return gone

    def drop_stored_before(self, cutoff: float) -> int:
        """Drop the entries last stored before engine time ``cutoff``; returns how many."""
        gone = 0
        for group in self.groups.values():
            for tier in group.tiers.values():
                doomed = [name for name in tier.held if tier.copies_of(name).last < cutoff]
                for name in doomed:
                    tier.remove(name)
                gone += len(doomed)
        return gone

    def entries_of(self, pod: str, rank: int) -> Iterator[Entry]:
        """Every entry, in the order of first storing within each group and medium."""
        for number, group in self.groups.items():
            for medium, tier in group.tiers.items():
                for block_hash, packed in tier.held.items():
                    content = content_of(packed, block_hash)
                    copies = tier.copies_of(block_hash)
                    yield Entry(
                        pod,
                        rank,
                        self.model,
                        lora_under(packed),
                        medium,
                        number,
                        block_hash,
                        content,
                        is_anchored(content),
                        copies.first,
                        copies.last,
                        copies.copies,
                    )

    def find(self, block_hash: BlockHash) -> Content | None:
        """Identity of the block that this engine calls ``block_hash``, if it is held."""
        for group in self.groups.values():
            content = group.find(block_hash)
            if content is not None:
                return content
        return None

    def _contents(
        self, event: BlockStored, group: Group, tier: Tier, lora: str | None
    ) -> list[Content]:
        """Identity of each named block of the event."""
        if not event.token_ids:
            return untold_of(event, self.model, lora, self._finder(group))
        before = event.parent_block_hash
        packed = tier.held.get(before)  # type: ignore[arg-type]  # there is none under None
        if packed is not None:
            parent = content_of(packed, before)  # type: ignore[arg-type]
        else:
            parent = parent_of(event, self.model, lora, self._finder(group))
        contents = span_of(event, parent, lora)
        if self._lineage is not None:
            self._lineage.update(zip(contents, [parent, *contents[:-1]], strict=True))
        return named_of(event, contents)

    def _finder(self, group: Group) -> Find:
        """What finds a block by name; best in the group given."""
        # A sliding-window group does not name every block: its parent may be another group's.
        return self.find if len(self.groups) == 1 else partial(self._find_first_in, group)

    def _find_first_in(self, group: Group, block_hash: BlockHash) -> Content | None:
        return group.find(block_hash) or self.find(block_hash)
