"""An index in an SQLite file: what was committed survives a kill, and the streams' positions too.

The tables are the truth, no state is kept beside them: another process may purge between two
transactions. A transaction begins with the first record after a commit; a second writer waits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

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
from kvctl.index.content import Content
from kvctl.index.model import (
    Entry,
    IndexSummary,
    PodMatch,
    Prompt,
    StreamFacts,
    Traits,
)
from kvctl.index.policy import Removals
from kvctl.index.spans import (
    lora_of,
    medium_of,
    model_of,
    named_of,
    parent_of,
    span_of,
    untold_of,
)
from kvctl.index.sqlitedb import reading
from kvctl.index.sqlitedb.file import open_file, told

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
        self._db = open_file(self.path, read_only=read_only)
        with self._guard():
            for stream, medium in self._db.execute("SELECT DISTINCT stream, medium FROM entries"):
                self._media.setdefault(stream, set()).add(medium)

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

    def begin_again(self, pod: str, rank: int) -> None:
        """Remove a stream's entries and its position; committed with what is applied next."""
        with self._guard():
            self._begin()
            self._purge(pod, rank, None)
            self._positions.pop((pod, rank), None)
            self._moved.add((pod, rank))

    def remarks(self) -> list[str]:
        """Nothing is refused."""
        return []

    def summary(self) -> IndexSummary:
        """Counts per stream, and distinct blocks; looks at every entry."""
        with self._guard():
            return reading.summary(self._db)

    def entries(self, pod: str | None = None) -> Iterator[Entry]:
        """Every entry, of one pod or of all, pod by pod and rank by rank."""
        with self._guard():
            yield from reading.entries(self._db, pod)

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
            return reading.facts(self._db)

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
            return reading.match(self._db, prompt)

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

        model = self._model_names[stream]
        if event.token_ids:
            contents = span_of(event, parent_of(event, model, lora, find), lora)
        else:
            contents = untold_of(event, model, lora, find)
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
        streams = "(SELECT id FROM streams WHERE pod = ?1 AND (?2 IS NULL OR rank = ?2))"
        if before is None:  # what comes next may be of another life, with other groups
            self._db.execute(f"DELETE FROM groups WHERE stream IN {streams}", (pod, rank))
            self._groups.clear()
        return self._db.execute(
            f"DELETE FROM entries WHERE stream IN {streams} AND (?3 IS NULL OR last_stored < ?3)",
            (pod, rank, before),
        ).rowcount

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeEncodeError) as error:
            self._roll_back()
            raise told(error, self.path) from None

    def _roll_back(self) -> None:
        self._moved.clear()
        self._streams.clear()
        self._groups.clear()
        if self._db.in_transaction:
            self._db.rollback()
