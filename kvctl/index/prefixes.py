"""The prefixes that engines have in common: which runs of leading blocks are held by which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import nlargest
from typing import TypeAlias, cast

from kvctl.events import BlockHash
from kvctl.index.content import Content, is_anchored, root
from kvctl.index.holdings import Group, Holdings
from kvctl.index.match import deciding_groups
from kvctl.index.packed import all_anchored, content_of, lora_under

Stream: TypeAlias = tuple[str, int]
Place: TypeAlias = tuple[int, int]
"""The holders of a block and of all before it, a bit each, and how deep it stands."""

_NOWHERE: Place = (0, 0)


@dataclass(frozen=True)
class PrefixRun:
    """Blocks in a row that the same engines hold, together with all blocks before them.

    It stands behind ``begin`` blocks of the prompt and reaches to the ``end``-th; there it forks
    into ``continuations`` (more than one), goes on at fewer engines (one), or ends (none).
    ``holders`` are (pod, DP rank), ``last`` is the name that the first of them has for the last
    block. ``above`` is the place, in the list that this run is in, of the nearest run that it
    goes on from.
    """

    begin: int
    end: int
    block_size: int
    model: str
    lora: str | None
    holders: tuple[Stream, ...]
    continuations: int
    last: BlockHash
    above: int | None = None

    @property
    def blocks(self) -> int:
        """Blocks in the run itself."""
        return self.end - self.begin

    @property
    def entries(self) -> int:
        """Entries that the run makes, over all its holders."""
        return self.blocks * len(self.holders)


@dataclass(frozen=True)
class PrefixTree:
    """``runs`` are the biggest that several engines hold or that fork (by blocks, times holders,
    times continuations), in the order of a walk from the roots; ``shared`` is how many such there
    are. ``spread`` tells, for a number of engines, how many distinct blocks so many can match.
    ``cut_off`` counts distinct blocks that nobody can match, since a block before them is gone.
    """

    runs: tuple[PrefixRun, ...]
    shared: int
    spread: Mapping[int, int]
    cut_off: int


def prefix_tree(
    streams: Mapping[Stream, Holdings], lineage: Mapping[Content, Content], most: int
) -> PrefixTree:
    """The tree of all that is held, in any medium, and its ``most`` biggest shared runs.

    ``lineage`` has the parent of every block that is held.
    """
    keys = sorted(streams)
    tree = _Tree(_holders(streams, keys), _roots(streams), lineage)
    runs = tree.shared_runs(most)
    ordered = _walk(runs, tree)
    holders = {
        end: tuple(key for bit, key in enumerate(keys) if tree.mask(end) >> bit & 1)
        for _begin, end in runs
    }
    names = _Names(streams, ((held_by[0], end) for end, held_by in holders.items()))
    places = {end: place for place, (_begin, end) in enumerate(ordered)}
    return PrefixTree(
        tuple(
            PrefixRun(
                begin,
                tree.depth(end),
                *names.of(end),
                holders[end],
                tree.continuations(end),
                names.name(end),
                _place(tree.nearest_above(end, places), places),
            )
            for begin, end in ordered
        ),
        tree.shared,
        dict(sorted(tree.spread.items())),
        tree.cut_off,
    )


def _walk(runs: list[tuple[int, Content]], tree: _Tree) -> list[tuple[int, Content]]:
    """The runs, each behind the one that it goes on from; among sisters in the order given."""
    ends = {end for _begin, end in runs}
    behind: dict[Content | None, list[tuple[int, Content]]] = {}
    for run in runs:
        behind.setdefault(tree.nearest_above(run[1], ends), []).append(run)
    walked: list[tuple[int, Content]] = []
    ahead = behind.get(None, [])[::-1]
    while ahead:
        run = ahead.pop()
        walked.append(run)
        ahead += behind.get(run[1], [])[::-1]
    return walked


def _place(end: Content | None, places: Mapping[Content, int]) -> int | None:
    return None if end is None else places[end]


class _Tree:
    """Of each block: who holds it and all before it (a bit mask), and how deep it stands."""

    def __init__(
        self, held: dict[Content, int], roots: set[Content], lineage: Mapping[Content, Content]
    ) -> None:
        self.spread: Counter[int] = Counter()
        self.cut_off = 0
        self.shared = 0
        self._lineage = lineage
        self._nodes = self._placed(held, roots)
        # The only block that goes on from a block; where there are several, how many.
        self._next: dict[Content, Content] = {}
        self._forks: dict[Content, int] = {}
        for content in self._nodes:
            parent = lineage[content]
            if self._next.setdefault(parent, content) is not content:
                self._forks[parent] = self._forks.get(parent, 1) + 1

    def _placed(self, held: dict[Content, int], roots: set[Content]) -> dict[Content, Place]:
        """Turns each block's holders into its place, in the dictionary given: it is as large as
        the index."""
        lineage = self._lineage
        places = cast(dict[Content, "int | Place"], held)
        # Many blocks have the same mask and depth: one object for all of them.
        known: dict[Place, Place] = {}
        for content in places:
            path: list[tuple[Content, int]] = []
            at: Content | None = content
            there = places[content]
            while isinstance(there, int):
                assert at is not None
                path.append((at, there))
                at = lineage.get(at)
                there = _NOWHERE if at is None else places.get(at, _NOWHERE)
            mask, depth = there
            if at in roots:
                mask = -1
            for each, holders in reversed(path):
                mask, depth = mask & holders, depth + 1
                place = (mask, depth)
                places[each] = known.setdefault(place, place) if mask else _NOWHERE
        placed = cast(dict[Content, Place], places)
        for mask, _depth in placed.values():
            if mask:
                self.spread[mask.bit_count()] += 1
            else:
                self.cut_off += 1
        if self.cut_off:
            return {content: place for content, place in placed.items() if place[0]}
        return placed

    def mask(self, content: Content) -> int:
        return self._nodes[content][0]

    def depth(self, content: Content) -> int:
        return self._nodes[content][1]

    def continuations(self, content: Content) -> int:
        return self._forks.get(content, int(content in self._next))

    def shared_runs(self, most: int) -> list[tuple[int, Content]]:
        """The biggest runs, as (blocks before it, last block)."""
        found = nlargest(most, self._shared_runs())
        return [(begin, end) for _weight, _depth, end, begin in found]

    def _shared_runs(self) -> Iterator[tuple[int, int, Content, int]]:
        for content, (mask, depth) in self._nodes.items():
            holders = mask.bit_count()
            if (holders > 1 or content in self._forks) and self._is_end(content):
                self.shared += 1
                begin = depth - 1
                before = self._lineage[content]
                while before in self._nodes and not self._is_end(before):
                    begin -= 1
                    before = self._lineage[before]
                # What finds it: every prompt that goes on behind it, at every engine.
                ways = max(1, self._forks.get(content, 1))
                yield (depth - begin) * holders * ways, depth, content, begin

    def _is_end(self, content: Content) -> bool:
        following = self._next.get(content)
        return (
            following is None
            or content in self._forks
            or self._nodes[following][0] != self._nodes[content][0]
        )

    def nearest_above(self, content: Content, ends: Container[Content]) -> Content | None:
        """The nearest block before, of those."""
        at = self._lineage[content]
        while at in self._nodes:
            if at in ends:
                return at
            at = self._lineage[at]
        return None


class _Names:
    """What is known of a few blocks, each at the engine that is to name it."""

    def __init__(
        self, streams: Mapping[Stream, Holdings], wanted: Iterable[tuple[Stream, Content]]
    ) -> None:
        self._found: dict[Content, tuple[int, str, str | None, BlockHash]] = {}
        by_stream: dict[Stream, set[Content]] = {}
        for stream, content in wanted:
            by_stream.setdefault(stream, set()).add(content)
        for stream, contents in by_stream.items():
            for group in deciding_groups(streams[stream].groups):
                self._look(streams[stream].model, group, contents)

    def _look(self, model: str, group: Group, wanted: set[Content]) -> None:
        for tier in group.tiers.values():
            for name, packed in tier.held.items():
                content = content_of(packed, name)
                if content in wanted:
                    told = (group.block_size, model, lora_under(packed), name)
                    self._found.setdefault(content, told)

    def of(self, content: Content) -> tuple[int, str, str | None]:
        """Block size, model and LoRA."""
        return self._found[content][:3]

    def name(self, content: Content) -> BlockHash:
        return self._found[content][3]


def _holders(streams: Mapping[Stream, Holdings], keys: list[Stream]) -> dict[Content, int]:
    """For each anchored block a bit for every engine whose deciding groups all hold it."""
    held: dict[Content, int] = {}
    known: dict[int, int] = {}
    for number, key in enumerate(keys):
        bit = 1 << number
        for content in _held_by(streams[key]):
            mask = held.get(content, 0) | bit
            held[content] = known.setdefault(mask, mask)
    return held


def _held_by(holdings: Holdings) -> Iterator[Content]:
    groups = deciding_groups(holdings.groups)
    if len(groups) == 1:
        yield from _anchored(groups[0])
    elif groups:
        yield from set.intersection(*(set(_anchored(group)) for group in groups))


def _anchored(group: Group) -> Iterator[Content]:
    for tier in group.tiers.values():
        for packed, contents in tier.together():
            if all_anchored(packed):
                yield from contents
            else:
                yield from filter(is_anchored, contents)


def _roots(streams: Mapping[Stream, Holdings]) -> set[Content]:
    """Identities of the empty prefixes that the engines' blocks can begin with."""
    beginnings = set()
    for holdings in streams.values():
        loras = {
            lora_under(packed)
            for group in holdings.groups.values()
            for tier in group.tiers.values()
            for packed in tier.held.values()
        }
        beginnings |= {(holdings.model, lora) for lora in loras}
    return {root(model, lora) for model, lora in beginnings}
