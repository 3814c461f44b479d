"""Which of a prompt's blocks are held, looked up by the first block of each run stored together.

A prompt that one pod holds was stored in few runs: a look-up each, instead of one a block, and a
quarter of the memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvctl.index.content import Content
from kvctl.index.packed import Packed, contents_of, first_of, shared_with, shortened


class Runs:
    """The identities held in one medium.

    A run ends before the first block of it that was removed, or is none if another run begins
    where it does. Blocks in no run are kept one by one, counted: two names may have one identity.
    """

    __slots__ = ("_starts",)

    def __init__(self) -> None:
        self._starts: dict[Content, Packed | int] = {}

    def add(self, packed: Packed) -> None:
        """Add a run, all of it."""
        first = first_of(packed)
        if first in self._starts:
            for content in contents_of(packed):
                self.add_one(content)
        else:
            self._starts[first] = packed

    def add_one(self, content: Content) -> None:
        """Add a block that is in no run."""
        there = self._starts.get(content, 0)
        if not isinstance(there, int):
            self._take_apart(there)
            there = 1
        self._starts[content] = there + 1

    def remove(self, packed: Packed, content: Content) -> None:
        """Remove a block that was added with ``packed``, or by itself."""
        first = first_of(packed)
        run = self._starts.get(first)
        if not isinstance(run, bytes) or content not in (contents := contents_of(run)):
            self._remove_one(content)
            return
        # The engine evicts from the end: mostly there is nothing behind.
        place = contents.index(content)
        if place:
            self._starts[first] = shortened(run, place)
        else:
            del self._starts[first]
        for behind in contents[place + 1 :]:
            self.add_one(behind)

    def _remove_one(self, content: Content) -> None:
        there = self._starts[content]
        assert isinstance(there, int)
        if there > 1:
            self._starts[content] = there - 1
        else:
            del self._starts[content]

    def leading(self, contents: Sequence[Content]) -> int:
        """How many blocks are held, from the first on, without a gap."""
        starts, at, end = self._starts, 0, len(contents)
        while at < end:
            there = starts.get(contents[at])
            if there is None:
                break
            at += 1 if isinstance(there, int) else shared_with(there, contents, at)
        return at

    def covered(self, contents: Sequence[Content]) -> list[bool]:
        """Of each block, whether it is held."""
        covered = [False] * len(contents)
        for at, content in enumerate(contents):
            there = self._starts.get(content)
            if there is not None:
                held = 1 if isinstance(there, int) else shared_with(there, contents, at)
                covered[at : at + held] = [True] * held
        return covered

    def clear(self) -> dict[Content, Packed | int]:
        """Let go of everything; returns what is to be freed."""
        starts, self._starts = self._starts, {}
        return starts

    def _take_apart(self, packed: Packed) -> None:
        del self._starts[first_of(packed)]
        for content in contents_of(packed):
            self.add_one(content)
