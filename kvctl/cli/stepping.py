"""`kvctl replay --step`: one record at a time, and what it changed."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from kvctl.cli.record_json import record_objects
from kvctl.cli.record_lines import LineWriter
from kvctl.events import Record, stream_of
from kvctl.index import MemoryIndex

if TYPE_CHECKING:
    from rich.console import Console


class Changes:
    """How many entries each stream has now, against the step before."""

    def __init__(self, index: MemoryIndex) -> None:
        self._index = index
        self._before: dict[tuple[str, int | None], int] = {}

    def of(self, record: Record) -> tuple[int, int]:
        """(entries of the record's stream now, how many more than before it)."""
        stream = stream_of(record)
        now = self._index.entries_in(*stream)
        change = now - self._before.get(stream, 0)
        self._before[stream] = now
        return now, change


class JsonSteps:
    """A JSON object a step: its events or mark, and the entries behind it."""

    def __init__(self, index: MemoryIndex) -> None:
        self._changes = Changes(index)

    def show(self, record: Record) -> None:
        """Print one step."""
        pod, rank = stream_of(record)
        now, change = self._changes.of(record)
        step = {
            "pod": pod,
            "rank": rank,
            "records": list(record_objects(record)),
            "entries": now,
            "change": change,
        }
        sys.stdout.write(json.dumps(step, separators=(",", ":")) + "\n")


class LineSteps:
    """Lines a step; waits for a key where a person is there to press one."""

    def __init__(self, index: MemoryIndex, console: Console, *, interactive: bool) -> None:
        self._changes = Changes(index)
        self._lines = LineWriter(console)
        self._interactive = interactive and console.is_terminal

    def show(self, record: Record) -> None:
        """Print one step, then wait. `q` ends the walk as Ctrl-C does."""
        self._lines.write(record)
        now, change = self._changes.of(record)
        self._lines.note(f"    entries {now} ({change:+d})", "bold" if change else "dim")
        self._lines.flush()
        if self._interactive:
            self._wait()

    def _wait(self) -> None:
        try:
            answer = input("Enter: next step, g: go on to the end, q: quit > ").strip().lower()
        except EOFError:
            answer = "g"
        if answer == "q":
            raise KeyboardInterrupt
        self._interactive = answer != "g"
