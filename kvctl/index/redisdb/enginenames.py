"""Which engine hashes stand for a request key, kept on disk while an index is read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

_ASK = 500


class EngineNames:
    """Request key -> the engines' hashes for it: several where engines hash with other seeds.

    There may be one for every block of a fleet, too many to hold. Close it after use.
    """

    def __init__(self) -> None:
        # An empty name: a private file, on disk once it is larger than a cache, gone at the end.
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.execute(
            "CREATE TABLE names (request TEXT, engine TEXT, PRIMARY KEY (request, engine)) "
            "WITHOUT ROWID"
        )
        self._db.execute("BEGIN")

    def __enter__(self) -> EngineNames:
        return self

    def __exit__(self, *exc: object) -> None:
        self._db.close()

    def add(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Take in pairs of (request key, engine hash), both in decimal."""
        self._db.executemany("INSERT OR IGNORE INTO names VALUES (?, ?)", pairs)

    def of(self, requests: Sequence[str]) -> dict[str, list[int]]:
        """The engine hashes of request keys; a key without any is left out."""
        found: dict[str, list[int]] = {}
        for at in range(0, len(requests), _ASK):
            some = requests[at : at + _ASK]
            marks = ",".join("?" * len(some))
            for request, engine in self._db.execute(
                f"SELECT request, engine FROM names WHERE request IN ({marks})", some
            ):
                found.setdefault(request, []).append(int(engine))
        return found
