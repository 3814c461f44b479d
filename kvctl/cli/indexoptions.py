"""The options by which commands name an index, and the bar that long work in one shows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

if TYPE_CHECKING:
    from kvctl.fleet import Pod

IndexUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--index",
        help="sqlite:FILE or a path, capture:FILE, redis://…, dynamo+http://…. Default: the one "
        "in your state directory.",
        metavar="URL",
        show_default=False,
    ),
]

OwnKeys: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--own-keys",
        help="In Redis, keep kvctl's own notes beside the router's keys, under kvctl:….",
    ),
]

# Less is read before a bar could be.
_BAR_FROM = 20_000


def pods_of_context(context: str | None) -> tuple[Pod, ...]:
    """The pods of a context, for their names; none where there is no such thing."""
    from kvctl.fleet import load_config

    return load_config().context(context).pods


@contextmanager
def key_bar() -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar over an index's keys, on a terminal's stderr; None elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from kvctl.cli.output import stderr_console

    columns = (TextColumn("keys"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=stderr_console(), transient=True) as bar:
        task = bar.add_task("keys", visible=False)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=total >= _BAR_FROM)

        yield advance
