"""The prefix index in an SQLite file."""

from kvctl.index.sqlitedb.index import SqliteIndex

__all__ = ["SqliteIndex"]
