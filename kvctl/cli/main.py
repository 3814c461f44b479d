"""The `kvctl` command: every subcommand gathered, every error turned into a line and a code."""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated, Any

import typer

from kvctl import __version__
from kvctl.cli.everywhere import color_in
from kvctl.cli.group import help_when_bare, root_group
from kvctl.cli.output import tell_error
from kvctl.cli.panels import EVERYWHERE
from kvctl.cli.stdio import OutputError, drop_output, guard_stdio
from kvctl.errors import KvctlError

INTERRUPTED = 130


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"kvctl {__version__}")
        raise typer.Exit


def _kvctl(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version.",
            rich_help_panel=EVERYWHERE,
        ),
    ] = False,
) -> None:
    """See, prove and repair prefix-cache routing of LLM serving fleets.

    Examples:
      kvctl replay demo:fleet
      kvctl tail --context prod
      kvctl reproduce-2287
    """
    help_when_bare(context)


app = root_group(_kvctl)


def main() -> None:
    """Run the command line and end the process with the documented exit code."""
    _end_on_sigterm_as_on_ctrl_c()
    guard_stdio()
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line; returns its exit code."""
    code = 0
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except OutputError as error:
        drop_output()
        # Whoever read our output (`| head`) has had enough: that is no error.
        if not error.reader_gone:
            tell_error(f"kvctl: {error} (is the disk full?)")
            return 1
    return code


def _run(arguments: list[str]) -> int:
    if "_KVCTL_COMPLETE" in os.environ:
        from kvctl.cli.completing import answer

        return answer(typer.main.get_command(app), arguments)
    color_in(arguments)
    try:
        result = typer.main.get_command(app).main(
            arguments, prog_name="kvctl", standalone_mode=False
        )
        return result if isinstance(result, int) else 0
    except KvctlError as error:
        tell_error(f"kvctl: {error}")
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:
        usage = _usage_problem(error)
        if usage is None:
            raise
        tell_error(usage)
        return 2


def _usage_problem(error: Exception) -> str | None:
    """Click's complaint in one line with the next step, None for any other exception.

    typer carries click inside itself since 0.26 and names no public base class for its errors:
    they are known by what they offer.
    """
    context: Any = getattr(error, "ctx", None)
    text = getattr(error, "format_message", None)
    if text is None:
        return None
    path = context.command_path if context is not None else "kvctl"
    unknown = getattr(error, "option_name", None)
    known = getattr(error, "possibilities", False) is not False
    if unknown is not None and known:
        message, remedy = f"there is no option {unknown!r}", _options_like(unknown, context)
    else:
        message = " ".join(str(text()).split()).rstrip(".")
        remedy = getattr(error, "remedy", "")
    return f"{path}: {message[:1].lower()}{message[1:]} ({remedy or f'see {path} --help'})"


def _options_like(word: str, context: Any) -> str:
    from kvctl.fleet.wording import close_to

    known = context.command.get_params(context) if context is not None else ()
    return close_to(word, [each for option in known for each in option.opts if "--" in each])


def _end_on_sigterm_as_on_ctrl_c() -> None:
    """`kill` and a container's stop end a command as Ctrl-C does: files finished, summary shown."""

    def interrupt(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
