"""The blocks that one engine holds in one medium, for one KV-cache group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kvctl.events import BlockHash
from kvctl.index.burial import Burial
from kvctl.index.content import Content
from kvctl.index.packed import (
    Packed,
    all_anchored,
    content_of,
    contents_of,
    count_of,
    lora_under,
    pack,
    shortened,
    stored_at,
)
from kvctl.index.runs import Runs


class Copies(NamedTuple):
    """Times and count of an entry that was stored more than once."""

    first: float
    last: float
    copies: int


class Tier:
    """Entries by block hash. Most are stored once: only the others are in ``again``."""

    __slots__ = ("_runs", "again", "held", "unanchored")

    def __init__(self) -> None:
        self.held: dict[BlockHash, Packed] = {}
        self.again: dict[BlockHash, Copies] = {}
        self.unanchored = 0
        # Nothing but a match needs it, so it is made when the first one comes.
        self._runs: Runs | None = None

    def __len__(self) -> int:
        return len(self.held)

    def add(self, names: Sequence[BlockHash], packed: Packed, stored: float) -> int:
        """Add a copy of each block; returns how many blocks are new."""
        held = self.held
        copied = []
        for name in names:
            if name in held:
                copied.append(name)
            else:
                held[name] = packed
        added = len(names) - len(copied)
        if not all_anchored(packed):
            self.unanchored += added
        if added and self._runs is not None:
            if added == count_of(packed):
                self._runs.add(packed)
            else:
                for name in set(names).difference(copied):
                    self._runs.add_one(content_of(packed, name))
        for name in copied:
            self._add_copy(name, packed, stored)
        return added

    def _add_copy(self, name: BlockHash, packed: Packed, stored: float) -> None:
        copies = self.copies_of(name)
        self.again[name] = Copies(copies.first, stored, copies.copies + 1)
        # An unanchored block may turn out to be an anchored one.
        self._replace(name, packed)

    def correct(self, name: BlockHash, packed: Packed) -> None:
        """Where the block is held as another than in ``packed``: from now on it is that one."""
        old = self.held.get(name)
        content = content_of(packed, name)
        if old is not None and content_of(old, name) != content:
            [(_names, own)] = pack([name], [content], stored_at(old), lora_under(packed))
            self._replace(name, own)

    def copies_of(self, name: BlockHash) -> Copies:
        """Times and count of an entry."""
        copies = self.again.get(name)
        if copies is None:
            stored = stored_at(self.held[name])
            return Copies(stored, stored, 1)
        return copies

    def remove_copy(self, name: BlockHash) -> bool | None:
        """Remove one copy: whether that was the last, None where there is none."""
        if name in self.again:
            copies = self.again[name]
            if copies.copies > 1:
                self.again[name] = copies._replace(copies=copies.copies - 1)
                return False
        return True if self.remove(name) is not None else None

    def remove(self, name: BlockHash) -> Packed | None:
        """Remove an entry, whatever its copies; returns what it was among."""
        packed = self.held.pop(name, None)
        if packed is not None:
            if self.again:
                self.again.pop(name, None)
            if self.unanchored or self._runs is not None:
                self._gone(name, packed)
        return packed

    def leading(self, contents: Sequence[Content]) -> int:
        """How many blocks are held, from the first on, without a gap."""
        return (self._runs or self._made_runs()).leading(contents)

    def covered(self, contents: Sequence[Content]) -> list[bool]:
        """Of each block, whether it is held."""
        return (self._runs or self._made_runs()).covered(contents)

    def together(self) -> Iterator[tuple[Packed, list[Content]]]:
        """Every entry's identity, those that were stored together with what they are packed in."""
        names: list[BlockHash] = []
        among = None
        for name, packed in self.held.items():
            # By identity: two that are equal may hold different blocks of theirs.
            if packed is among:
                names.append(name)
                continue
            if among is not None:
                yield among, _contents(among, names)
            among, names = packed, [name]
        if among is not None:
            yield among, _contents(among, names)

    def bury(self, burial: Burial) -> None:
        """Let go of every entry; the tier must not be used any more."""
        burial.add(self.held)
        burial.add(self.again)
        if self._runs is not None:
            burial.add(self._runs.clear())

    def _replace(self, name: BlockHash, packed: Packed) -> None:
        """Another identity for an entry, which stays in its place."""
        content = content_of(packed, name)
        if content_of(self.held[name], name) != content:
            self._gone(name, self.held[name])
            self.held[name] = packed
            self.unanchored += not all_anchored(packed)
            if self._runs is not None:
                self._runs.add_one(content)

    def _gone(self, name: BlockHash, packed: Packed) -> None:
        self.unanchored -= not all_anchored(packed)
        if self._runs is not None:
            self._runs.remove(packed, content_of(packed, name))

    def _made_runs(self) -> Runs:
        runs = self._runs = Runs()
        for packed, contents in self.together():
            left = len(contents)
            if left == count_of(packed):
                runs.add(packed)
            elif contents == contents_of(packed)[:left]:
                runs.add(shortened(packed, left))
            else:
                for content in contents:
                    runs.add_one(content)
        return runs


def _contents(packed: Packed, names: Sequence[BlockHash]) -> list[Content]:
    """The identities of those blocks of it that have these names."""
    if len(names) == count_of(packed):
        return contents_of(packed)
    return [content_of(packed, name) for name in names]
