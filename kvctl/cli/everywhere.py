"""The options that every command takes, before or behind its name."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated, Any, get_args

import typer

from kvctl.cli.output import Color, manner
from kvctl.cli.panels import EVERYWHERE

_COLOR = "--color"


def _set_quiet(context: typer.Context, quiet: bool) -> None:
    if quiet and not context.resilient_parsing:
        manner.quiet = True


def _set_verbose(context: typer.Context, verbose: bool) -> None:
    if verbose and not context.resilient_parsing:
        from kvctl.cli.wiretalk import tell_of_the_wire

        tell_of_the_wire()


@functools.cache
def everywhere() -> tuple[Any, ...]:
    """The options, to be added to a command's own. Callbacks and `color_in` take them in."""
    app = typer.Typer(add_completion=False)
    app.command()(_options)
    return tuple(typer.main.get_command(app).params)


def color_in(arguments: Sequence[str]) -> None:
    """Take --color in before anything is parsed: a help is printed as soon as it is asked for."""
    words = iter(arguments)
    for word in words:
        name, _, value = word.partition("=")
        if word == "--":
            return
        if name == _COLOR:
            value = value or next(words, "")
            if value in get_args(Color):
                manner.color = value  # type: ignore[assignment]


def _options(
    color: Annotated[
        Color | None,
        typer.Option(
            _COLOR,
            help="Colors. Default: on a terminal, unless NO_COLOR is set.",
            expose_value=False,
            show_default=False,
            rich_help_panel=EVERYWHERE,
        ),
    ] = None,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            "-q",
            help="Say nothing on stderr but errors and questions.",
            callback=_set_quiet,
            expose_value=False,
            rich_help_panel=EVERYWHERE,
        ),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            help="Tell on stderr what goes over the wire: HTTP, ZMQ, Redis.",
            callback=_set_verbose,
            expose_value=False,
            rich_help_panel=EVERYWHERE,
        ),
    ] = False,
) -> None:
    """What `everywhere` makes options of."""
