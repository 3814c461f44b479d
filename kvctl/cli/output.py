"""How commands speak: data on stdout, talk on stderr, network strings made harmless."""

from __future__ import annotations

import os
import select
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from kvctl.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

OutputFormat: TypeAlias = Literal["table", "json", "jsonl"]

PIPED_WIDTH = 200
"""Columns of a table that goes to a pipe or a file: wide enough to cut nothing off."""


def stdout_console() -> Console:
    """A rich console on stdout; markup, emoji and highlighting off, since it prints data."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH
    return Console(markup=False, emoji=False, highlight=False, width=width)


def stderr_console() -> Console:
    """The same on stderr, for progress bars."""
    from rich.console import Console

    return Console(stderr=True, markup=False, emoji=False, highlight=False)


def check_reader() -> None:
    """Raise `BrokenPipeError` where whoever read our stdout is gone (`| head -1`).

    A write would find out as well, but a stream that brings nothing gives no occasion for one.
    """
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        return
    if any(events & select.POLLERR for _descriptor, events in poll.poll(0)):
        raise BrokenPipeError


HELD = 20
"""Most lines of talk that `held_talk` keeps: the last ones."""

_held: deque[str] | None = None


def say(text: str) -> None:
    """One line of talk on stderr, escaped. From any thread."""
    if _held is not None:
        _held.append(text)
    else:
        print(printable(text), file=sys.stderr, flush=True)


@contextmanager
def held_talk() -> Iterator[None]:
    """Keep talk from the terminal while something has the whole screen, and say it afterwards.

    Where stderr is no terminal nothing is held.
    """
    global _held  # noqa: PLW0603 -- there is one stderr
    if not sys.stderr.isatty():
        yield
        return
    held: deque[str] = deque(maxlen=HELD)
    _held = held
    try:
        yield
    finally:
        _held = None
        for line in held:
            say(line)


def warn(text: str) -> None:
    """One line on stderr about something that is not right but does not stop the command."""
    say(f"kvctl: warning: {text}")


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    import json

    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=True, allow_nan=False) + "\n")
    sys.stdout.flush()


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
