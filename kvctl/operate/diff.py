"""Two indexes compared, entry by entry, without holding either in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kvctl.errors import UsageError
from kvctl.events import BlockHash, hash_text, low_64
from kvctl.index import Entry, IndexView, Traits

_NO_RANK = -1

_CREATE = """
CREATE TABLE claims (
    pod TEXT, rank INTEGER, medium TEXT, group_number INTEGER, block BLOB,
    in_a INTEGER, in_b INTEGER, block_hash TEXT,
    PRIMARY KEY (pod, rank, medium, group_number, block)
) WITHOUT ROWID
"""
_CLAIM = """
INSERT INTO claims VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET in_a = MAX(in_a, excluded.in_a), in_b = MAX(in_b, excluded.in_b)
"""

_HELD = (
    "SELECT 1 FROM claims WHERE pod = ? AND rank = ? AND medium = ? AND group_number = ? "
    "AND block = ?"
)


@dataclass(frozen=True)
class PodDiff:
    """One pod: how many entries are in one index only, and in both."""

    pod: str
    only_a: int
    only_b: int
    both: int


@dataclass(frozen=True)
class Difference:
    """An entry that one index has and the other has not: ``side`` is `a` or `b`."""

    side: str
    pod: str
    rank: int | None
    medium: str
    group: int
    block_hash: str

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; the rank absent where it was not compared."""
        return {
            "only_in": self.side,
            "pod": self.pod,
            **({} if self.rank is None else {"rank": self.rank}),
            "medium": self.medium,
            "group": self.group,
            "block_hash": self.block_hash,
        }


class IndexDiff:
    """The comparison of two indexes; close it after use.

    A block is the same by its content where the chain back to its root is known in both, and
    otherwise by the engine's own hash. Only what both indexes tell (`Traits`) is compared. Raises
    `UsageError` where they have no name of a block in common.
    """

    def __init__(self, a: IndexView, b: IndexView) -> None:
        if a.traits.engine_hashes != b.traits.engine_hashes:
            raise UsageError(
                "one of the indexes names blocks by hashes of its own: they cannot be compared",
                remedy="kvctl index show tells the counts of both",
            )
        self.compared = _in_both(a.traits, b.traits)
        # An empty name: a private file, on disk once it is larger than a cache, gone at the end.
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.execute(_CREATE)
        self._db.execute("BEGIN")
        # A router may know a block by the names of several engines, and not which is whose: then
        # the other index decides, which therefore is read first.
        for view in sorted((a, b), key=lambda view: not view.traits.contents):
            self._db.executemany(_CLAIM, self._claims(view.entries(), in_a=view is a))
        self._db.execute("COMMIT")

    def __enter__(self) -> IndexDiff:
        return self

    def __exit__(self, *exc: object) -> None:
        self._db.close()

    def pods(self) -> list[PodDiff]:
        """The counts per pod."""
        rows = self._db.execute(
            "SELECT pod, SUM(in_a > in_b), SUM(in_b > in_a), SUM(in_a AND in_b) "
            "FROM claims GROUP BY pod ORDER BY pod"
        )
        return [PodDiff(*row) for row in rows]

    def differences(self) -> Iterator[Difference]:
        """Every entry that is in one only, pod by pod."""
        for row in self._db.execute(
            "SELECT CASE WHEN in_a THEN 'a' ELSE 'b' END, pod, rank, medium, group_number, "
            "block_hash FROM claims WHERE in_a <> in_b ORDER BY pod, rank, in_b"
        ):
            side, pod, rank, *rest = row
            yield Difference(side, pod, None if rank == _NO_RANK else rank, *rest)

    def _claims(self, entries: Iterable[Entry], *, in_a: bool) -> Iterator[tuple[Any, ...]]:
        compared = self.compared
        for entry in entries:
            rank = _NO_RANK if not compared.ranks or entry.rank is None else entry.rank
            key = (entry.pod, rank, entry.medium, entry.group if compared.groups else 0)
            name = self._pick(key, entry)
            content = entry.content if compared.contents and entry.anchored else None
            block = name.encode() if content is None else content
            yield (*key, block, int(in_a), int(not in_a), name)

    def _pick(self, key: tuple[str, int, str, int], entry: Entry) -> str:
        """The name of an entry's block: of several, the one that the other index knows it by."""
        names = [
            _name(block_hash, whole=self.compared.contents)
            for block_hash in (entry.block_hash, *entry.other_hashes)
        ]
        for name in names if len(names) > 1 else ():
            if self._db.execute(_HELD, (*key, name.encode())).fetchone():
                return name
        return names[0]


def _in_both(a: Traits, b: Traits) -> Traits:
    return Traits(
        ranks=a.ranks and b.ranks,
        contents=a.contents and b.contents,
        groups=a.groups and b.groups,
        times=a.times and b.times,
    )


def _name(block_hash: BlockHash | None, *, whole: bool) -> str:
    """The engine's hash as text; where not the ``whole`` is to be had, its last 64 bits."""
    if block_hash is None:
        return ""
    if whole:
        return hash_text(block_hash)
    return str(low_64(block_hash))
