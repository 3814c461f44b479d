"""Command groups: `kvctl`, whose commands are loaded when they run, and those below it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import typer

from kvctl.cli.command import CliCommand, CliGroup
from kvctl.cli.commands import COMMANDS, Entry

_SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": "rich",
}


class _Typer(typer.Typer):
    """A typer application whose commands are `CliCommand`s."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[..., Any]:
        """Register a command, as typer does."""
        settings.setdefault("cls", CliCommand)
        return super().command(name, **settings)


class RootGroup(CliGroup):
    """`kvctl` itself. Its commands are known by name and summary until one is run."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {entry.name: _summary(entry) for entry in COMMANDS}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names, loaded."""
        name, command, rest = super().resolve_command(ctx, args)
        entry = next((each for each in COMMANDS if each.name == name), None)
        return name, command if entry is None else load_command(entry), rest


def command_group(name: str, about: str) -> typer.Typer:
    """A typer application for the subcommands of ``name``; ``about`` is its docstring.

    Called bare, it shows its help.
    """
    group = _Typer(name=name, cls=CliGroup, invoke_without_command=True, **_SETTINGS)

    def show_help(context: typer.Context) -> None:
        help_when_bare(context)

    show_help.__doc__ = about
    group.callback()(show_help)
    return group


def root_group(callback: Callable[..., None]) -> typer.Typer:
    """The typer application of all `COMMANDS`; ``callback`` has the options of `kvctl` itself."""
    root = typer.Typer(
        name="kvctl",
        cls=RootGroup,
        invoke_without_command=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        **_SETTINGS,
    )
    root.callback()(callback)
    return root


def load_command(entry: Entry) -> Any:
    """The command, or the group of commands, with all its options."""
    module = import_module(f"kvctl.cli.{entry.module}")
    made = getattr(module, entry.attribute)
    if isinstance(made, typer.Typer):
        return typer.main.get_command(made)
    app = _Typer(**_SETTINGS)
    app.command(entry.name)(made)
    return typer.main.get_command(app)


def help_when_bare(context: Any) -> None:
    """Print the help and end with 0 where no subcommand was given."""
    if context.invoked_subcommand is None:
        text = context.get_help()
        if text:
            print(text)
        raise typer.Exit


def _summary(entry: Entry) -> Any:
    """What stands for a command that is not loaded, in the help and in completions."""
    from typer.core import TyperCommand

    return TyperCommand(entry.name, short_help=entry.summary, rich_help_panel=entry.panel)
