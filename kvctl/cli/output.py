"""How commands speak: data on stdout, talk on stderr, network strings made harmless."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from kvctl.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

OutputFormat: TypeAlias = Literal["table", "json", "jsonl"]
Color: TypeAlias = Literal["auto", "always", "never"]

PIPED_WIDTH = 200
"""Columns of a table that goes to a pipe or a file: wide enough to cut nothing off."""


@dataclass
class Manner:
    """How this run was asked to speak, by the options that stand everywhere."""

    quiet: bool = False
    color: Color = "auto"

    @property
    def plain(self) -> bool:
        """Whether no color or other style may be shown."""
        unwanted = self.color == "auto" and bool(os.environ.get("NO_COLOR"))
        return self.color == "never" or unwanted


manner = Manner()
"""This run's. The command line sets it, before a command begins."""


def stdout_console() -> Console:
    """A rich console on stdout; markup, emoji and highlighting off, since it prints data."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH
    return _console(width=width)


def stderr_console() -> Console:
    """The same on stderr, for progress bars."""
    return _console(stderr=True)


def _console(**settings: Any) -> Console:
    from rich.console import Console

    if manner.plain:
        settings["color_system"] = None
    elif manner.color == "always":
        settings |= {"force_terminal": True, "no_color": False}
    return Console(markup=False, emoji=False, highlight=False, **settings)


HELD = 20
"""Most lines of talk that `held_talk` keeps: the last ones."""

_held: deque[tuple[str, bool]] | None = None


def somebody_looks_on() -> bool:
    """Whether progress may be drawn on stderr: it is a terminal, and --quiet was not said."""
    return sys.stderr.isatty() and not manner.quiet


def say(text: str, *, whole: bool = False) -> None:
    """One line of talk on stderr, escaped; nothing with --quiet. From any thread.

    A terminal breaks it between words, unless it must stay ``whole``: a command to be copied.
    """
    if manner.quiet:
        return
    if _held is not None:
        _held.append((text, whole))
        return
    line = printable(text)
    print(line if whole else _broken(line), file=sys.stderr, flush=True)


def tell_error(text: str) -> None:
    """One line on stderr that --quiet does not silence."""
    print(_broken(printable(text)), file=sys.stderr, flush=True)


def _broken(line: str) -> str:
    """The line, broken between words where a terminal would break it within one.

    A word, such as a path or a URL, stays whole however long it is.
    """
    try:
        width = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):  # no terminal: a message is a line
        return line
    if not 0 < width < len(line):
        return line
    import textwrap

    return "\n".join(textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False))


@contextmanager
def held_talk() -> Iterator[None]:
    """Keep talk from the terminal while something has the whole screen, and say it afterwards.

    Where stderr is no terminal nothing is held.
    """
    global _held  # noqa: PLW0603 -- there is one stderr
    if not sys.stderr.isatty():
        yield
        return
    held: deque[tuple[str, bool]] = deque(maxlen=HELD)
    _held = held
    try:
        yield
    finally:
        _held = None
        for text, whole in held:
            say(text, whole=whole)


def warn(text: str) -> None:
    """One line on stderr about something that is not right but does not stop the command."""
    say(f"kvctl: warning: {text}")


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json_text(value))
    sys.stdout.flush()


def json_text(value: Any) -> str:
    """A value as one JSON document."""
    import json

    return json.dumps(value, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def print_table(table: Table) -> None:
    """A table on stdout."""
    stdout_console().print(table)


def plain_table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """An empty table in kubectl's manner: upper-case heads, no lines; ``right`` aligns numbers."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(
            column.upper(),
            justify="right" if column in right else "left",
            overflow="fold",
            no_wrap=column in right,
        )
    return table


def marked_table(name_width: int) -> Table:
    """An empty table of what was looked at, a mark, and what was found.

    What is too long for a line goes on below itself.
    """
    from rich.table import Table

    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(min_width=name_width, no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    return table
