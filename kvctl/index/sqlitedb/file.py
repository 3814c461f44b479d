"""The file: opened, checked for being an index, made where there is none."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from kvctl.index.errors import IndexStoreError
from kvctl.index.sqlitedb.schema import APPLICATION_ID, CREATE, VERSION

BUSY_S = 10.0
"""How long a second writer waits for the first to commit."""

_CACHE_KIB = 128 * 1024
_WAL_PAGES = 16 * 1024  # of 4 KiB


def open_file(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """A connection without transactions of its own; the index is made unless ``read_only``.

    Raises `IndexStoreError`.
    """
    if read_only and not path.exists():
        raise IndexStoreError(f"there is no index {path}", remedy="kvctl tail --index")
    mode = "ro" if read_only else "rwc"
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    db = None
    try:
        db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_S)
        _check(db, path, read_only=read_only)
    except BaseException as error:
        if db is not None:
            db.close()
        if isinstance(error, sqlite3.Error):
            raise told(error, path) from None
        raise
    return db


def told(error: Exception, path: Path) -> IndexStoreError:
    """What SQLite says, with a remedy."""
    text = str(error)
    remedy = "what was committed before stays"
    if "locked" in text:
        remedy = f"another kvctl has held it for {BUSY_S:g} s; is one stuck?"
    elif "not a database" in text:
        remedy = "is it the right file?"
    elif "unable to open" in text:
        remedy = "is its folder there, and yours to write to?"
    return IndexStoreError(f"index {path}: {text}", remedy=remedy)


def _check(db: sqlite3.Connection, path: Path, *, read_only: bool) -> None:
    (tables,) = db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    (kind,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if not tables and not read_only:
        _create(db)
    elif kind != APPLICATION_ID:
        raise IndexStoreError(f"{path} is an SQLite file, but no index of kvctl")
    elif version != VERSION:
        raise IndexStoreError(
            f"{path} is an index of version {version}; this kvctl knows {VERSION}",
            remedy="install a newer kvctl"
            if version > VERSION
            else "move it away: kvctl tail --index builds it anew from the engines' replay",
        )
    # A kill loses nothing in WAL mode at NORMAL; a power cut may lose the last commits, whole.
    db.execute("PRAGMA synchronous = NORMAL")
    # Entries lie by hash, so writes go everywhere: keep the pages at hand.
    db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    db.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")


def _create(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("BEGIN IMMEDIATE")
    (tables,) = db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    if not tables:  # nobody was faster
        for statement in CREATE.split(";"):
            db.execute(statement)
    db.execute("COMMIT")
