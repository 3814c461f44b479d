"""What every command of kvctl is: its options, its help, its errors."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

from kvctl.cli.coercion import use_plain_coercion
from kvctl.cli.everywhere import everywhere
from kvctl.cli.helptext import print_examples, split_docstring
from kvctl.cli.panels import EVERYWHERE


class _InOneManner:
    """What a command and a group have in common: it stands before typer's class of either."""

    examples: tuple[str, ...] = ()
    params: list[Any]

    def __init__(self, *args: Any, **attributes: Any) -> None:
        attributes["help"], self.examples = split_docstring(attributes.get("help") or "")
        attributes["short_help"] = attributes["help"].partition("\n")[0]
        typers: Any = super()
        typers.__init__(*args, **attributes)
        self.params += everywhere()
        for parameter in self.params:
            _settle(parameter)

    def get_help_option(self, ctx: Any) -> Any:
        """--help, in the group of what stands everywhere."""
        typers: Any = super()
        return _placed(typers.get_help_option(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help, the examples last."""
        typers: Any = super()
        with _HelpManner(self):
            typers.format_help(ctx, formatter)
        if self.examples:
            print_examples(self.examples)


class CliCommand(_InOneManner, TyperCommand):
    """A command with the options that stand everywhere, and ``examples`` behind its help."""


class CliGroup(_InOneManner, TyperGroup):
    """A group of commands, with the options that stand everywhere.

    Shows its help when called bare, as kubectl does. A word that is no command of it is answered
    with the one that was probably meant.
    """

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names."""
        word = args[0]
        if word not in self.commands and not word.startswith("-"):
            from kvctl.errors import UsageError
            from kvctl.fleet.wording import close_to, quoted

            where = f"{ctx.info_name} has" if ctx.parent is not None else "there is"
            raise UsageError(
                f"{where} no command {quoted(word)}",
                remedy=close_to(word, self.commands) or f"see {ctx.command_path} --help",
            )
        return super().resolve_command(ctx, args)


class _HelpManner:
    """While a help is printed: colors as they were asked for, brackets as they are.

    Of a flag that is on unless one says no, the no is shown.
    """

    def __init__(self, command: Any) -> None:
        self._command = command
        self._help = command.help
        self._switched = [each for each in command.params if getattr(each, "secondary_opts", ())]
        self._on = {each.name: each.opts for each in self._switched}

    def __enter__(self) -> None:
        from rich.markup import escape
        from typer import rich_utils

        from kvctl.cli.output import manner

        self._command.help = escape(self._help)
        for each in self._switched:
            each.opts, each.secondary_opts = each.secondary_opts, []
        if manner.plain:
            rich_utils.COLOR_SYSTEM = None
        elif manner.color == "always":
            rich_utils.FORCE_TERMINAL = True

    def __exit__(self, *exc: object) -> None:
        self._command.help = self._help
        for each in self._switched:
            each.opts, each.secondary_opts = self._on[each.name], each.opts


def _placed(option: Any) -> Any:
    if option is not None:
        option.rich_help_panel = EVERYWHERE
        option.help = "Show this help and end."
        _settle(option)
    return option


def _settle(parameter: Any) -> None:
    """Have a parameter coerced and shown in kvctl's way."""
    plain = use_plain_coercion(parameter)
    if parameter.param_type_name == "argument":
        parameter.display_type_rich = lambda ctx: ""  # its name and its help tell enough
    elif getattr(parameter, "is_flag", False):
        parameter.metavar = ""  # nothing stands behind it
    elif parameter.metavar is None and plain is not None:
        parameter.metavar = plain.metavar
    # The help tells a range in words, where it is not plain anyway.
    parameter.min = parameter.max = None
