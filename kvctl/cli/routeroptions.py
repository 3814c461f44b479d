"""The options by which commands name a router model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from kvctl.cli.completers import complete_running
from kvctl.cli.panels import ROUTER

if TYPE_CHECKING:
    from kvctl.operate.replay import RouterOptions

Router: TypeAlias = Annotated[
    Literal["longest", "aibrix"],
    typer.Option(
        "--router",
        help="longest: the pod with the longest prefix. aibrix: AIBrix's prefix-cache choice.",
        rich_help_panel=ROUTER,
    ),
]

RunningRequests: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--running",
        metavar="POD=N",
        autocompletion=complete_running,
        help="With --router aibrix: requests a pod runs, 0 by default.",
        rich_help_panel=ROUTER,
        show_default=False,
    ),
]

Seed: TypeAlias = Annotated[
    int,
    typer.Option(
        "--seed", help="Decides where a router chooses at random.", rich_help_panel=ROUTER
    ),
]


def router_options(
    name: Literal["longest", "aibrix"], running: Sequence[str] | None, seed: int
) -> RouterOptions:
    """The router that was named. Raises `UsageError` for a load that is none."""
    from kvctl.errors import UsageError
    from kvctl.operate.replay import RouterOptions

    loads = {}
    for word in running or ():
        pod, _, count = word.rpartition("=")
        if not pod or not count.isdecimal():
            raise UsageError(f"--running {word!r}", remedy="--running POD=N")
        loads[pod] = int(count)
    return RouterOptions(name, loads, seed)
