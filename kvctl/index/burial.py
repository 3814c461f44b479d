"""Frees the entries of a cleared pod a few at a time, so that the clear itself costs nothing.

Dropping a dict of a million entries stops the interpreter for tens of milliseconds. Whoever lets
go of one hands it over here; each later batch digs a little.
"""

from __future__ import annotations

from typing import Any

ENTRIES_PER_DIG = 512


class Burial:
    """Dicts waiting to be emptied."""

    def __init__(self) -> None:
        self._dicts: list[dict[Any, Any]] = []

    def add(self, dead: dict[Any, Any]) -> None:
        """Take over a dict; the caller must hold no other reference to it."""
        if dead:
            self._dicts.append(dead)

    def dig(self) -> None:
        """Free some entries, if any wait."""
        if not self._dicts:
            return
        dead = self._dicts[-1]
        for _ in range(min(ENTRIES_PER_DIG, len(dead))):
            dead.popitem()
        if not dead:
            self._dicts.pop()
