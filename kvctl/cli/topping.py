"""The run of `kvctl top`: a table on the whole screen, or objects for programs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kvctl.cli.output import (
    OutputFormat,
    held_talk,
    plain_table,
    print_json,
    print_table,
    stdout_console,
)
from kvctl.cli.stdio import check_reader
from kvctl.errors import UsageError
from kvctl.fleet import Pod
from kvctl.operate.top import FleetWatch, TopRow
from kvctl.text import printable

if TYPE_CHECKING:
    from rich.table import Table

INTERRUPTED = 130
_NUMBERS = ("#", "ev/s", "stored/s", "gone/s", "entries", "of", "lost", "clear", "hit")
_STYLES = {"awake": "green", "unknown": "yellow", "suspect": "yellow", "halted": "bold red"}
_SORTS: dict[str, Callable[[TopRow], Any]] = {
    "pod": lambda row: (row.pod, row.rank),
    "state": lambda row: (row.state, row.pod, row.rank),
    "events": lambda row: -row.events,
    "stored": lambda row: -row.stored,
    "removed": lambda row: -row.removed,
    "entries": lambda row: -row.entries,
    "missing": lambda row: -row.missing,
    "hit": lambda row: -(row.hit_rate or 0.0),
}


class Topping:
    """One run; `run` returns the exit code. ``count`` None goes on until Ctrl-C."""

    def __init__(
        self,
        pods: Sequence[Pod],
        *,
        api_key: str | None,
        interval: float,
        count: int | None,
        sort: str,
        timeout: float,
        output: OutputFormat,
    ) -> None:
        if output == "json" and count != 1:
            raise UsageError("-o json tells one look", remedy="-n 1, or -o jsonl")
        self._pods = pods
        self._api_key = api_key
        self._interval = interval
        self._left = count
        self._order = _SORTS[sort]
        self._timeout = timeout
        self._output = output

    def run(self) -> int:
        """Look until it is over."""
        with FleetWatch(self._pods, api_key=self._api_key, timeout=self._timeout) as watch:
            try:
                watch.settle(self._timeout)
                if self._output == "table" and sys.stdout.isatty():
                    self._on_screen(watch)
                else:
                    self._print(watch)
            except KeyboardInterrupt:
                return INTERRUPTED
        return 0

    def _on_screen(self, watch: FleetWatch) -> None:
        """The alternate screen: what was on the terminal is there again afterwards."""
        from rich.live import Live

        rows: list[TopRow] = []
        console = stdout_console()
        with (
            held_talk(),
            Live(console=console, screen=True, auto_refresh=False, redirect_stderr=False) as live,
        ):
            while self._more():
                rows = self._look(watch)
                live.update(_table(rows, heading=True), refresh=True)
        print_table(_table(rows))  # the last look stays

    def _print(self, watch: FleetWatch) -> None:
        while self._more():
            rows = self._look(watch)
            told = {"at": time.time(), "pods": [row.to_dict() for row in rows]}
            if self._output == "json":
                print_json(told)
            elif self._output == "jsonl":
                sys.stdout.write(json.dumps(told, separators=(",", ":")) + "\n")
            else:
                print_table(_table(rows))
            sys.stdout.flush()
            check_reader()

    def _more(self) -> bool:
        if self._left is None:
            return True
        self._left -= 1
        return self._left >= 0

    def _look(self, watch: FleetWatch) -> list[TopRow]:
        return sorted(watch.look(self._interval), key=self._order)


def _table(rows: Sequence[TopRow], *, heading: bool = False) -> Table:
    from rich.text import Text

    table = plain_table(
        "pod", "#", "state", "ev/s", "stored/s", "gone/s", "entries", "of", "lost", "clear", "hit",
        right=_NUMBERS,
    )  # fmt: skip
    for column, width in ((table.columns[0], 6), (table.columns[2], 7)):
        column.min_width = width  # on a narrow terminal numbers go before names do
    if heading:
        table.title = f"kvctl top  {time.strftime('%H:%M:%S')}   Ctrl-C ends it"
        table.title_justify = "left"
    for row in rows:
        table.add_row(
            printable(row.pod),
            str(row.rank),
            Text(row.state, style=_STYLES.get(row.state, "red")),
            f"{row.events:,.0f}",
            f"{row.stored:,.0f}",
            f"{row.removed:,.0f}",
            f"{row.entries:,}",
            "-" if row.capacity is None else f"{row.capacity:,}",
            f"{row.missing:,}",
            "-" if row.last_clear is None else _age(row.last_clear),
            "-" if row.hit_rate is None else f"{row.hit_rate:.0%}",
        )
    return table


def _age(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"
