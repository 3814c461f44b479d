"""Command groups that show their help when called bare, as kubectl does."""

from __future__ import annotations

from typing import Any

import typer


def command_group(name: str, summary: str) -> typer.Typer:
    """A typer application for the subcommands of ``name``."""
    group = typer.Typer(
        name=name,
        add_completion=False,
        invoke_without_command=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    def show_help(context: typer.Context) -> None:
        help_when_bare(context)

    show_help.__doc__ = summary
    group.callback()(show_help)
    return group


def help_when_bare(context: Any) -> None:
    """Print the help and end with 0 where no subcommand was given."""
    if context.invoked_subcommand is None:
        text = context.get_help()
        if text:
            print(text)
        raise typer.Exit
