"""The options by which commands name an index, and the bar that long work in one shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from kvctl.cli.completers import complete_index
from kvctl.cli.panels import INDEX

if TYPE_CHECKING:
    from kvctl.fleet import Pod

IndexUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--index",
        help="sqlite:FILE or a path, capture:FILE, redis://…, dynamo+http://…. Default: the "
        "context's, or the one in your state directory.",
        metavar="URL",
        rich_help_panel=INDEX,
        autocompletion=complete_index,
        show_default=False,
    ),
]

OwnKeys: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--own-keys",
        help="In Redis, keep kvctl's own notes beside the router's keys, under kvctl:….",
        rich_help_panel=INDEX,
    ),
]

# Less is read before a bar could be.
_BAR_FROM = 20_000


def index_of_context(index: str | None, context: str | None) -> str | None:
    """The index that was named, or else the context's; None where there is neither."""
    from kvctl.fleet import load_config

    return index or load_config().context(context).index


def pods_of_context(context: str | None, *indexes: str | None) -> tuple[Pod, ...]:
    """The pods of a context, for the names that a router's index has for them.

    None where the context has none, or where no index is a router's: kvctl's own has the names.
    """
    from kvctl.fleet import load_config
    from kvctl.operate.indexes import kind_of

    if not any(kind_of(each) in ("redis", "dynamo") for each in indexes):
        return ()
    found = load_config().context(context)
    if found.kubernetes is None:
        return found.pods
    from kvctl.cli.podoptions import NOT_IN_KUBERNETES

    return NOT_IN_KUBERNETES.over(found.kubernetes).pods(()).pods().pods


@contextmanager
def key_bar() -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar over an index's keys, on a terminal's stderr; None elsewhere."""
    from kvctl.cli.output import somebody_looks_on, stderr_console

    if not somebody_looks_on():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("keys"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=stderr_console(), transient=True) as bar:
        task = bar.add_task("keys", visible=False)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=total >= _BAR_FROM)

        yield advance
