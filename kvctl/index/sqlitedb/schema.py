"""The tables of an index in SQLite, readable with the `sqlite3` command.

`streams` has a row per (pod, DP rank): its model, and the last batch taken in (`last_seq`,
`last_ts` engine time, `last_digest` of the payload), written in the transaction that takes it in.
`last_clear` is the engine time of the last clear or restart taken in, `last_gap` our clock at the
last gap that was not filled. `memory` is what reconcile keeps between its rounds, as JSON.
`groups` has the KV-cache groups of each stream. `entries` has a row per claim that a pod holds a
block in a medium: `block_hash` is text as kvctl prints it, `content` the block's identity (12
bytes; 13 where it is unanchored), `first_stored` and `last_stored` engine time, `copies` physical
copies.
"""

from __future__ import annotations

APPLICATION_ID = 0x6B76_6374  # "kvct", so that `file` and kvctl know the file
VERSION = 2
"""2: identities of 12 bytes. Those of version 1, of 16, are never equal to them."""

CREATE = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION};
CREATE TABLE streams (
    id INTEGER PRIMARY KEY,
    pod TEXT NOT NULL,
    rank INTEGER NOT NULL,
    model TEXT NOT NULL,
    last_seq INTEGER,
    last_ts REAL,
    last_digest TEXT,
    last_clear REAL,
    last_gap REAL,
    UNIQUE (pod, rank)
);
CREATE TABLE groups (
    stream INTEGER NOT NULL,
    number INTEGER NOT NULL,
    kind TEXT,
    block_size INTEGER NOT NULL,
    PRIMARY KEY (stream, number)
) WITHOUT ROWID;
CREATE TABLE entries (
    stream INTEGER NOT NULL,
    group_number INTEGER NOT NULL,
    medium TEXT NOT NULL,
    block_hash TEXT NOT NULL,
    content BLOB NOT NULL,
    lora TEXT,
    first_stored REAL NOT NULL,
    last_stored REAL NOT NULL,
    copies INTEGER NOT NULL,
    PRIMARY KEY (stream, block_hash, group_number, medium)
) WITHOUT ROWID;
CREATE TABLE memory (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX entries_by_content ON entries (content, stream);
"""
