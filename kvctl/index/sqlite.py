"""An index in an SQLite file: what was committed survives a kill, and the streams' positions too.

The tables are the truth, no state is kept beside them: another process may purge between two
transactions. A transaction begins with the first record after a commit; a second writer waits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from kvctl.events import (
    AllBlocksCleared,
    Batch,
    BlockHash,
    BlockRemoved,
    BlockStored,
    EventBatch,
    Gap,
    Position,
    Record,
    Restart,
    Undecodable,
    hash_text,
    position_of,
)
from kvctl.index.content import Content, is_anchored
from kvctl.index.errors import IndexStoreError
from kvctl.index.match import deciding_groups, match_holdings, prompt_contents
from kvctl.index.model import (
    Entry,
    IndexSummary,
    PodMatch,
    Prompt,
    StreamFacts,
    StreamSummary,
    Traits,
)
from kvctl.index.policy import Removals
from kvctl.index.schema import APPLICATION_ID, CREATE, VERSION
from kvctl.index.spans import lora_of, medium_of, model_of, named_of, span_of

BUSY_S = 10.0
"""How long a second writer waits for the first to commit."""

_CACHE_KIB = 128 * 1024
_WAL_PAGES = 16 * 1024  # of 4 KiB

_ASK = 500  # contents asked for in one query; SQLite takes at least 999 parameters

_STORE = """
INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1)
ON CONFLICT DO UPDATE SET
    content = excluded.content, lora = excluded.lora,
    last_stored = excluded.last_stored, copies = copies + 1
"""
_SAME_BLOCK = """
UPDATE entries SET content = ?1
WHERE stream = ?2 AND block_hash = ?3 AND group_number = ?4 AND content <> ?1
"""
_KEY = "stream = ? AND group_number = ? AND medium = ? AND block_hash = ?"


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
    held: dict[str, _Medium] = field(default_factory=dict)

    def media(self) -> dict[str, _Medium]:
        return self.held


@dataclass
class _Stream:
    """One (pod, DP rank), to match."""

    model: str
    groups: dict[int, _Group] = field(default_factory=dict)


class SqliteIndex:
    """The index in ``path``; made if it is not there, unless ``read_only``.

    ``models`` names a pod's model where its topic does not. Raises `IndexStoreError` for a file
    that is something else, is of a newer kvctl, is locked for too long, or cannot be written: what
    was committed before stays.
    """

    traits = Traits()

    def __init__(
        self,
        path: str | Path,
        *,
        read_only: bool = False,
        removals: Removals = Removals.COUNT,
        models: Mapping[str, str] | None = None,
    ) -> None:
        self.path = Path(path)
        self._removals = removals
        self._models = dict(models or {})
        self._streams: dict[tuple[str, int], int] = {}
        self._model_names: dict[int, str] = {}
        self._media: dict[int, set[str]] = {}
        self._groups: dict[tuple[int, int], tuple[str | None, int]] = {}
        self._positions: dict[tuple[str, int], Position] = {}
        self._moved: set[tuple[str, int]] = set()
        if read_only and not self.path.exists():
            raise IndexStoreError(f"there is no index {self.path}", remedy="kvctl tail --index")
        with self._guard():
            mode = "ro" if read_only else "rwc"
            uri = f"{self.path.absolute().as_uri()}?mode={mode}"
            self._db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_S)
        try:
            with self._guard():
                self._check(read_only)
        except BaseException:
            self._db.close()
            raise

    def __enter__(self) -> SqliteIndex:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            self._db.close()

    def apply(self, record: Record) -> None:
        """Take one record in. A batch that another writer took in already changes nothing."""
        with self._guard():
            self._begin()
            if isinstance(record, (Batch, Undecodable)):
                self._apply_batch(record)
            elif isinstance(record, Restart):
                key = (record.pod, record.rank)
                self._purge(record.pod, record.rank, None)
                self._positions.pop(key, None)
                self._moved.add(key)
                self._mark("last_clear", record.recv_ns / 1e9, key)
            elif isinstance(record, Gap) and not record.recovered:
                self._mark("last_gap", record.recv_ns / 1e9, (record.pod, record.rank))

    def commit(self) -> None:
        """Make everything applied so far last, with the positions, in one transaction."""
        if not self._db.in_transaction:
            return
        with self._guard():
            for key in self._moved:
                position = self._positions.get(key)
                told = (None, None, None)
                if position is not None:
                    told = (position.seq, position.ts, f"{position.digest:016x}")  # type: ignore[assignment]
                self._db.execute(
                    "UPDATE streams SET last_seq = ?, last_ts = ?, last_digest = ? "
                    "WHERE pod = ? AND rank = ?",
                    (*told, *key),
                )
            self._moved.clear()
            self._db.execute("COMMIT")

    def positions(self) -> dict[tuple[str, int], Position]:
        """The last batch that every (pod, DP rank) was taken in from, as far as committed."""
        with self._guard():
            rows = self._db.execute(
                "SELECT pod, rank, last_seq, last_ts, last_digest FROM streams "
                "WHERE last_seq IS NOT NULL"
            )
            return {(row[0], row[1]): Position(row[2], row[3], int(row[4], 16)) for row in rows}

    def summary(self) -> IndexSummary:
        """Counts per stream, and distinct blocks; looks at every entry."""
        with self._guard():
            media = self._counts("medium", "medium")
            loras = self._counts("lora", "lora")
            rows = self._db.execute(
                "SELECT s.id, s.pod, s.rank, s.model, COUNT(e.stream), "
                "COALESCE(SUM(LENGTH(e.content) > 16), 0), MAX(e.last_stored) "
                "FROM streams s LEFT JOIN entries e ON e.stream = s.id "
                "GROUP BY s.id ORDER BY s.pod, s.rank"
            ).fetchall()
            (blocks,) = self._db.execute("SELECT COUNT(DISTINCT content) FROM entries").fetchone()
        streams = tuple(
            StreamSummary(
                pod, rank, model, count, unanchored, media.get(at, {}), loras.get(at, {}), newest
            )
            for at, pod, rank, model, count, unanchored, newest in rows
        )
        return IndexSummary(blocks, streams)

    def entries(self, pod: str | None = None) -> Iterator[Entry]:
        """Every entry, of one pod or of all, pod by pod and rank by rank."""
        with self._guard():
            rows = self._db.execute(
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

    def entries_in(self, pod: str, rank: int | None = None) -> int:
        """How many entries a pod (one DP rank of it) has."""
        with self._guard():
            row = self._db.execute(
                "SELECT COUNT(*) FROM entries e JOIN streams s ON s.id = e.stream "
                "WHERE s.pod = ?1 AND (?2 IS NULL OR s.rank = ?2)",
                (pod, rank),
            ).fetchone()
            return int(row[0])

    def purge(self, pod: str, rank: int | None = None, *, before: float | None = None) -> int:
        """Remove a pod's entries, those last stored before an engine time; returns how many."""
        with self._guard():
            self._begin()
            purged = self._purge(pod, rank, before)
        self.commit()
        return purged

    def facts(self) -> list[StreamFacts]:
        """What is known of every stream besides its entries, as far as committed."""
        with self._guard():
            rows = self._db.execute(
                "SELECT s.pod, s.rank, COUNT(e.stream), MIN(e.last_stored), MAX(e.last_stored), "
                "s.last_ts, s.last_clear, s.last_gap "
                "FROM streams s LEFT JOIN entries e ON e.stream = s.id "
                "GROUP BY s.id ORDER BY s.pod, s.rank"
            )
            return [StreamFacts(*row) for row in rows]

    def stored_before(self, pod: str, rank: int | None, cutoff: float | None) -> int:
        """How many entries were last stored before an engine time; all without ``cutoff``."""
        with self._guard():
            row = self._db.execute(
                "SELECT COUNT(*) FROM entries e JOIN streams s ON s.id = e.stream "
                "WHERE s.pod = ?1 AND (?2 IS NULL OR s.rank = ?2) "
                "AND (?3 IS NULL OR e.last_stored < ?3)",
                (pod, rank, cutoff),
            ).fetchone()
            return int(row[0])

    def recall(self, name: str) -> str | None:
        """What was remembered under that name."""
        with self._guard():
            row = self._db.execute("SELECT value FROM memory WHERE name = ?", (name,)).fetchone()
            return None if row is None else row[0]

    def remember(self, name: str, value: str) -> None:
        """Keep a text under a name, committed at once."""
        with self._guard():
            self._begin()
            self._db.execute(
                "INSERT INTO memory VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
                (name, value),
            )
        self.commit()

    def match(self, prompt: Prompt) -> dict[str, PodMatch]:
        """Per pod, how many leading blocks of the prompt it holds."""
        with self._guard():
            streams = self._db.execute("SELECT id, pod, rank, model FROM streams").fetchall()
            groups = self._db.execute(
                "SELECT g.stream, g.number, g.kind, g.block_size, "
                "(SELECT COUNT(*) FROM entries e WHERE e.stream = g.stream "
                "AND e.group_number = g.number) FROM groups g"
            ).fetchall()
            held: dict[int, _Stream] = {}
            known: dict[tuple[str, int], _Stream] = {}
            for at, pod, rank, model in streams:
                held[at] = known[pod, rank] = _Stream(model)
            for at, number, kind, size, count in groups:
                held[at].groups[number] = _Group(kind, size, count)
            for content, at, number, medium in self._holders(prompt, held):
                held[at].groups[number].held.setdefault(medium, _Medium()).add(content)
            return match_holdings(known, prompt)

    def close(self) -> None:
        """Commit, and let go of the file."""
        self.commit()
        self._db.close()

    # -- inside a transaction -------------------------------------------------------------------

    def _begin(self) -> None:
        if self._db.in_transaction:
            return
        self._db.execute("BEGIN IMMEDIATE")
        # Another writer may have been here since.
        self._positions = self.positions()
        for pod, rank, at, model in self._db.execute("SELECT pod, rank, id, model FROM streams"):
            self._streams[pod, rank] = at
            self._model_names[at] = model

    def _apply_batch(self, record: Batch | Undecodable) -> None:
        wire = record.wire
        key = (wire.pod, wire.rank)
        here, last = position_of(record), self._positions.get(key)
        if last is not None and here.seq <= last.seq:
            if here.ts is None or last.ts is None or here.ts <= last.ts:
                return  # taken in before
            self._purge(*key, None)  # a newer life of the stream, from a capture perhaps
        stream = self._stream(key, wire.topic)
        self._positions[key] = here
        self._moved.add(key)
        if isinstance(record, Batch):
            self._apply_events(key, stream, record.events)

    def _apply_events(self, key: tuple[str, int], stream: int, batch: EventBatch) -> None:
        for event in batch.events:
            if isinstance(event, BlockStored):
                self._store(stream, event, batch.ts)
            elif isinstance(event, BlockRemoved):
                self._remove(stream, event)
            elif isinstance(event, AllBlocksCleared):
                self._purge(*key, None)
                self._mark("last_clear", batch.ts, key)

    def _stream(self, key: tuple[str, int], topic: bytes) -> int:
        stream = self._streams.get(key)
        if stream is None:
            model = model_of(topic) or self._models.get(key[0], "")
            row = self._db.execute(
                "INSERT INTO streams (pod, rank, model) VALUES (?, ?, ?)", (*key, model)
            )
            stream = self._streams[key] = int(row.lastrowid or 0)
            self._model_names[stream] = model
        return stream

    def _store(self, stream: int, event: BlockStored, stored: float) -> None:
        number, medium, lora = event.group_idx or 0, medium_of(event.medium), lora_of(event)
        self._note_group(stream, number, event)

        def find(block_hash: BlockHash) -> Content | None:
            # A sliding-window group does not name every block: then another group's name counts.
            row = self._db.execute(
                "SELECT content FROM entries WHERE stream = ? AND block_hash = ? "
                "ORDER BY group_number <> ? LIMIT 1",
                (stream, hash_text(block_hash), number),
            ).fetchone()
            return None if row is None else row[0]

        _parent, contents = span_of(event, self._model_names[stream], lora, find)
        names = [hash_text(block_hash) for block_hash in event.block_hashes]
        named = list(zip(names, named_of(event, contents), strict=True))
        self._db.executemany(
            _STORE,
            [
                (stream, number, medium, name, content, lora, stored, stored)
                for name, content in named
            ],
        )
        media = self._media.setdefault(stream, set())
        media.add(medium)
        if len(media) > 1:  # a block that turns out to be another is so in every medium
            self._db.executemany(
                _SAME_BLOCK, [(content, stream, name, number) for name, content in named]
            )

    def _mark(self, column: str, moment: float, key: tuple[str, int]) -> None:
        self._db.execute(
            f"UPDATE streams SET {column} = ? WHERE pod = ? AND rank = ?", (moment, *key)
        )

    def _note_group(self, stream: int, number: int, event: BlockStored) -> None:
        told = (event.kv_cache_spec_kind, event.block_size)
        if self._groups.get((stream, number)) != told:
            self._groups[stream, number] = told
            self._db.execute(
                "INSERT INTO groups VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
                "kind = excluded.kind, block_size = MAX(block_size, excluded.block_size)",
                (stream, number, *told),
            )

    def _remove(self, stream: int, event: BlockRemoved) -> None:
        number, medium = event.group_idx or 0, medium_of(event.medium)
        keys = [(stream, number, medium, hash_text(each)) for each in event.block_hashes]
        if self._removals is Removals.FIRST:
            self._db.executemany(f"DELETE FROM entries WHERE {_KEY}", keys)
            return
        for key in keys:
            self._db.execute(f"UPDATE entries SET copies = copies - 1 WHERE {_KEY}", key)
        self._db.executemany(f"DELETE FROM entries WHERE {_KEY} AND copies <= 0", keys)

    def _purge(self, pod: str, rank: int | None, before: float | None) -> int:
        return self._db.execute(
            "DELETE FROM entries WHERE stream IN "
            "(SELECT id FROM streams WHERE pod = ?1 AND (?2 IS NULL OR rank = ?2)) "
            "AND (?3 IS NULL OR last_stored < ?3)",
            (pod, rank, before),
        ).rowcount

    # -- reading --------------------------------------------------------------------------------

    def _counts(self, column: str, wanted: str) -> dict[int, dict[str, int]]:
        counts: dict[int, dict[str, int]] = {}
        for stream, value, count in self._db.execute(
            f"SELECT stream, {column}, COUNT(*) FROM entries WHERE {wanted} IS NOT NULL "
            f"GROUP BY stream, {column}"
        ):
            counts.setdefault(stream, {})[value] = count
        return counts

    def _holders(
        self, prompt: Prompt, streams: Mapping[int, _Stream]
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
            yield from self._db.execute(
                "SELECT content, stream, group_number, medium FROM entries "
                f"WHERE content IN ({marks})",
                some,
            )

    # -- the file -------------------------------------------------------------------------------

    def _check(self, read_only: bool) -> None:
        (tables,) = self._db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        (kind,) = self._db.execute("PRAGMA application_id").fetchone()
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if not tables and not read_only:
            self._create()
        elif kind != APPLICATION_ID:
            raise IndexStoreError(f"{self.path} is an SQLite file, but no index of kvctl")
        elif version > VERSION:
            raise IndexStoreError(
                f"{self.path} is an index of version {version}; this kvctl knows {VERSION}",
                remedy="install a newer kvctl",
            )
        # A kill loses nothing in WAL mode at NORMAL; a power cut may lose the last commits, whole.
        self._db.execute("PRAGMA synchronous = NORMAL")
        # Entries lie by hash, so writes go everywhere: keep the pages at hand.
        self._db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self._db.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
        self._media = {}
        for stream, medium in self._db.execute("SELECT DISTINCT stream, medium FROM entries"):
            self._media.setdefault(stream, set()).add(medium)

    def _create(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("BEGIN IMMEDIATE")
        (tables,) = self._db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        if not tables:  # nobody was faster
            for statement in CREATE.split(";"):
                self._db.execute(statement)
        self._db.execute("COMMIT")

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeEncodeError) as error:
            self._roll_back()
            text = str(error)
            remedy = "what was committed before stays"
            if "locked" in text:
                remedy = f"another kvctl has held it for {BUSY_S:g} s; is one stuck?"
            elif "not a database" in text:
                remedy = "is it the right file?"
            raise IndexStoreError(f"index {self.path}: {text}", remedy=remedy) from None

    def _roll_back(self) -> None:
        db: Any = getattr(self, "_db", None)
        self._moved.clear()
        self._streams.clear()
        self._groups.clear()
        if db is not None and db.in_transaction:
            db.rollback()


def _hash(text: str) -> BlockHash:
    """A block hash from its text: ints have at most 20 digits, bytes at least 32."""
    return int(text) if len(text) <= 20 else bytes.fromhex(text)
