"""The prefix index in memory: records in, entries, summaries and matches out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kvctl.events import (
    AllBlocksCleared,
    Batch,
    BlockHash,
    BlockRemoved,
    BlockStored,
    EventBatch,
    Record,
    Restart,
    WireBatch,
)
from kvctl.index.burial import Burial
from kvctl.index.content import Content
from kvctl.index.holdings import Holdings
from kvctl.index.match import match_holdings
from kvctl.index.model import Entry, IndexSummary, PodMatch, Prompt, StreamSummary, Traits
from kvctl.index.packed import lora_under
from kvctl.index.policy import PURGE, Clears, Policy, Removals
from kvctl.index.prefixes import PrefixTree, prefix_tree
from kvctl.index.spans import model_of


@dataclass(slots=True)
class Counters:
    """What the records so far did to the index."""

    batches: int = 0
    blocks_stored: int = 0
    """Block hashes named by `BlockStored` events, duplicates included."""
    entries_added: int = 0
    entries_removed: int = 0
    entries_cleared: int = 0
    """Entries that went by a clear or a restart."""
    clears: int = 0
    unknown_removed: int = 0
    """Block hashes of `BlockRemoved` events that the index did not hold: harmless."""


class MemoryIndex:
    """All entries of all pods.

    ``models`` names a pod's model where the topic does not (`kv@<pod>@<model>` does).
    ``loras`` names a pod's own LoRA for the AIBrix policy, whose clears reach that one only.
    With ``lineage`` the parent of every block ever seen is remembered, for `ancestry` and
    `prefixes`.
    """

    traits = Traits()

    def __init__(
        self,
        *,
        policy: Policy = PURGE,
        removals: Removals = Removals.COUNT,
        models: Mapping[str, str] | None = None,
        loras: Mapping[str, str] | None = None,
        lineage: bool = False,
    ) -> None:
        self.counters = Counters()
        self._policy = policy
        self._removals = removals
        self._models = dict(models or {})
        self._loras = dict(loras or {})
        self._lineage: dict[Content, Content] | None = {} if lineage else None
        self._streams: dict[tuple[str, int], Holdings] = {}
        self._burial = Burial()

    def apply(self, record: Record) -> None:
        """Take one record in. Gaps, notes and undecodable batches change no entry."""
        if isinstance(record, Batch):
            self._burial.dig()
            self._apply_batch(record.wire, record.events)
        elif isinstance(record, Restart) and self._policy.restarts_purge:
            self.counters.entries_cleared += self.purge(record.pod, record.rank)

    def _apply_batch(self, wire: WireBatch, batch: EventBatch) -> None:
        key = (wire.pod, wire.rank)
        counters, ts = self.counters, batch.ts
        counters.batches += 1
        holdings = self._streams.get(key)
        if holdings is None:
            holdings = self._streams[key] = self._new_holdings(wire)
        for event in batch.events:
            if isinstance(event, BlockStored):
                counters.blocks_stored += len(event.block_hashes)
                counters.entries_added += holdings.store(event, ts)
            elif isinstance(event, BlockRemoved):
                gone, strange = holdings.remove(event)
                counters.entries_removed += gone
                counters.unknown_removed += strange
            elif isinstance(event, AllBlocksCleared):
                counters.clears += 1
                if self._policy.clears is Clears.ALL:
                    counters.entries_cleared += self.purge(*key)
                    holdings = self._streams[key]
                elif self._policy.clears is Clears.ONE_LORA:
                    counters.entries_cleared += holdings.drop_lora(self._loras.get(wire.pod))

    def _new_holdings(self, wire: WireBatch) -> Holdings:
        model = model_of(wire.topic) or self._models.get(wire.pod, "")
        return Holdings(model, self._removals, self._lineage)

    def purge(self, pod: str, rank: int | None = None, *, before: float | None = None) -> int:
        """Remove the entries of a pod (of one DP rank), returning how many they were.

        With ``before`` only those last stored earlier than that engine time: this looks at each
        entry, unless all are that old. Without, it costs the same whatever the pod holds.
        """
        purged = 0
        for key, holdings in self._streams.items():
            if key[0] != pod or (rank is not None and key[1] != rank):
                continue
            if before is not None and holdings.newest is not None and holdings.newest >= before:
                purged += holdings.drop_stored_before(before)
                continue
            purged += holdings.entries
            self._streams[key] = Holdings(holdings.model, self._removals, self._lineage)
            for group in holdings.groups.values():
                self._burial.add(group.dropped)
                for tier in group.tiers.values():
                    tier.bury(self._burial)
        return purged

    def entries_in(self, pod: str, rank: int | None = None) -> int:
        """How many entries a pod (one DP rank of it) has; costs nothing."""
        return sum(
            holdings.entries
            for key, holdings in self._streams.items()
            if key[0] == pod and (rank is None or key[1] == rank)
        )

    def entries(self, pod: str | None = None) -> Iterator[Entry]:
        """Every entry, of one pod or of all, pod by pod and rank by rank."""
        for (name, rank), holdings in sorted(self._streams.items(), key=lambda item: item[0]):
            if pod is None or name == pod:
                yield from holdings.entries_of(name, rank)

    def summary(self) -> IndexSummary:
        """Counts per stream, and distinct blocks; looks at every entry."""
        blocks: set[Content] = set()
        streams = []
        for (pod, rank), holdings in sorted(self._streams.items(), key=lambda item: item[0]):
            media: dict[str, int] = {}
            loras: dict[str, int] = {}
            for group in holdings.groups.values():
                for medium, tier in group.tiers.items():
                    if tier:
                        media[medium] = media.get(medium, 0) + len(tier)
                    for packed, contents in tier.together():
                        blocks.update(contents)
                        lora = lora_under(packed)
                        if lora is not None:
                            loras[lora] = loras.get(lora, 0) + len(contents)
            entries = holdings.entries
            streams.append(
                StreamSummary(
                    pod,
                    rank,
                    holdings.model,
                    entries,
                    holdings.unanchored,
                    media,
                    loras,
                    holdings.newest if entries else None,
                )
            )
        return IndexSummary(len(blocks), tuple(streams))

    def match(self, prompt: Prompt) -> dict[str, PodMatch]:
        """Per pod, how many leading blocks of the prompt it holds."""
        return match_holdings(self._streams, prompt)

    def match_block(self, block_hash: BlockHash) -> dict[str, PodMatch] | None:
        """Per pod, how much it holds of the prompt that ends in the block of that engine hash.

        None where no pod holds such a block. Needs ``lineage``.
        """
        path = self.ancestry(block_hash)
        return None if path is None else match_holdings(self._streams, path)

    def ancestry(self, block_hash: BlockHash) -> list[Content] | None:
        """Identities from the first block of the prefix down to the named one, None if unknown.

        An unanchored block's path begins at the first block that was seen. Needs ``lineage``.
        """
        if self._lineage is None:
            raise ValueError("ancestry needs an index made with lineage=True")
        found = (holdings.find(block_hash) for holdings in self._streams.values())
        content = next((each for each in found if each is not None), None)
        if content is None:
            return None
        path: list[Content] = []
        while content in self._lineage:
            path.append(content)
            content = self._lineage[content]
        return path[::-1]

    def prefixes(self, most: int) -> PrefixTree:
        """What the engines have in common, with the ``most`` biggest runs. Needs ``lineage``."""
        if self._lineage is None:
            raise ValueError("prefixes needs an index made with lineage=True")
        return prefix_tree(self._streams, self._lineage, most)

    @property
    def remembered(self) -> int:
        """How many blocks' parents are remembered."""
        return len(self._lineage or ())

    def forget_unheld(self) -> None:
        """Forget the parents of blocks that no pod holds any more: `ancestry` ends at such.

        Looks at every entry.
        """
        if self._lineage is None:
            return
        kept: dict[Content, Content] = {}
        for holdings in self._streams.values():
            for group in holdings.groups.values():
                for tier in group.tiers.values():
                    for _packed, contents in tier.together():
                        kept.update(
                            (content, self._lineage[content])
                            for content in contents
                            if content in self._lineage
                        )
        self._lineage.clear()
        self._lineage.update(kept)
