"""What the tables tell: counts, entries, facts, matches."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from kvctl.events import BlockHash
from kvctl.index.content import ANCHORED_LENGTH, Content, is_anchored
from kvctl.index.match import deciding_groups, match_holdings, prompt_contents
from kvctl.index.model import (
    Entry,
    IndexSummary,
    PodMatch,
    Prompt,
    StreamFacts,
    StreamSummary,
)

_ASK = 500  # contents asked for in one query; SQLite takes at least 999 parameters


class _Medium(set[Content]):
    """Of a prompt's blocks, those in one medium."""

    def leading(self, contents: Sequence[Content]) -> int:
        return sum(1 for _ in takewhile(self.__contains__, contents))

    def covered(self, contents: Sequence[Content]) -> list[bool]:
        return [content in self for content in contents]


@dataclass
class _Group:
    """What a match needs of one KV-cache group."""

    kind: str | None
    block_size: int
    named: int
    tiers: dict[str, _Medium] = field(default_factory=dict)


@dataclass
class _Stream:
    """One (pod, DP rank), to match."""

    model: str
    groups: dict[int, _Group] = field(default_factory=dict)


def summary(db: sqlite3.Connection) -> IndexSummary:
    """Counts per stream, and distinct blocks; looks at every entry."""
    media = _counts(db, "medium", "medium")
    loras = _counts(db, "lora", "lora")
    rows = db.execute(
        "SELECT s.id, s.pod, s.rank, s.model, COUNT(e.stream), "
        f"COALESCE(SUM(LENGTH(e.content) > {ANCHORED_LENGTH}), 0), MAX(e.last_stored) "
        "FROM streams s LEFT JOIN entries e ON e.stream = s.id "
        "GROUP BY s.id ORDER BY s.pod, s.rank"
    ).fetchall()
    (blocks,) = db.execute("SELECT COUNT(DISTINCT content) FROM entries").fetchone()
    streams = tuple(
        StreamSummary(
            pod, rank, model, count, unanchored, media.get(at, {}), loras.get(at, {}), newest
        )
        for at, pod, rank, model, count, unanchored, newest in rows
    )
    return IndexSummary(blocks, streams)


def entries(db: sqlite3.Connection, pod: str | None) -> Iterator[Entry]:
    """Every entry, of one pod or of all, pod by pod and rank by rank."""
    rows = db.execute(
        "SELECT s.pod, s.rank, s.model, e.lora, e.medium, e.group_number, e.block_hash, "
        "e.content, e.first_stored, e.last_stored, e.copies "
        "FROM entries e JOIN streams s ON s.id = e.stream "
        "WHERE ?1 IS NULL OR s.pod = ?1 ORDER BY s.pod, s.rank, e.group_number, e.medium",
        (pod,),
    )
    for name, rank, model, lora, medium, group, text, content, first, last, copies in rows:
        yield Entry(
            name,
            rank,
            model,
            lora,
            medium,
            group,
            _hash(text),
            content,
            is_anchored(content),
            first,
            last,
            copies,
        )


def facts(db: sqlite3.Connection) -> list[StreamFacts]:
    """What is known of every stream besides its entries, as far as committed."""
    rows = db.execute(
        "SELECT s.pod, s.rank, COUNT(e.stream), MIN(e.last_stored), MAX(e.last_stored), "
        "s.last_ts, s.last_clear, s.last_gap "
        "FROM streams s LEFT JOIN entries e ON e.stream = s.id "
        "GROUP BY s.id ORDER BY s.pod, s.rank"
    )
    return [StreamFacts(*row) for row in rows]


def match(db: sqlite3.Connection, prompt: Prompt) -> dict[str, PodMatch]:
    """Per pod, how many leading blocks of the prompt it holds."""
    streams = db.execute("SELECT id, pod, rank, model FROM streams").fetchall()
    # How many blocks a group names decides only between several, and takes a look at all of them.
    groups = db.execute(
        "SELECT g.stream, g.number, g.kind, g.block_size, "
        "CASE (SELECT COUNT(*) FROM groups other WHERE other.stream = g.stream) WHEN 1 THEN 0 "
        "ELSE (SELECT COUNT(DISTINCT e.block_hash) FROM entries e WHERE e.stream = g.stream "
        "AND e.group_number = g.number) END FROM groups g"
    ).fetchall()
    held: dict[int, _Stream] = {}
    known: dict[tuple[str, int], _Stream] = {}
    for at, pod, rank, model in streams:
        held[at] = known[pod, rank] = _Stream(model)
    for at, number, kind, size, count in groups:
        held[at].groups[number] = _Group(kind, size, count)
    for content, at, number, medium in _holders(db, prompt, held):
        held[at].groups[number].tiers.setdefault(medium, _Medium()).add(content)
    return match_holdings(known, prompt)


def _counts(db: sqlite3.Connection, column: str, wanted: str) -> dict[int, dict[str, int]]:
    counts: dict[int, dict[str, int]] = {}
    for stream, value, count in db.execute(
        f"SELECT stream, {column}, COUNT(*) FROM entries WHERE {wanted} IS NOT NULL "
        f"GROUP BY stream, {column}"
    ):
        counts.setdefault(stream, {})[value] = count
    return counts


def _holders(
    db: sqlite3.Connection, prompt: Prompt, streams: Mapping[int, _Stream]
) -> Iterator[tuple[Content, int, int, str]]:
    """Who holds any block of the prompt: (content, stream, group, medium)."""
    cuts = set()
    for each in streams.values():
        size = max((group.block_size for group in deciding_groups(each.groups)), default=0)
        cuts.add((each.model if prompt.model is None else prompt.model, size))
    contents = {content for cut in cuts for content in prompt_contents(prompt, *cut)}
    wanted = sorted(contents)
    for at in range(0, len(wanted), _ASK):
        some = wanted[at : at + _ASK]
        marks = ",".join("?" * len(some))
        yield from db.execute(
            f"SELECT content, stream, group_number, medium FROM entries WHERE content IN ({marks})",
            some,
        )


def _hash(text: str) -> BlockHash:
    """A block hash from its text: ints have at most 20 digits, bytes at least 32."""
    return int(text) if len(text) <= 20 else bytes.fromhex(text)
