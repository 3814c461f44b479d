"""`kvctl explain`: what the JSON of a command holds, and what exit codes mean."""

from __future__ import annotations

from typing import Annotated

import typer

from kvctl.cli.output import plain_table, print_table, stdout_console


def explain(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[COMMAND...]", help="As typed: tail, index match, reconcile."),
    ] = None,
) -> None:
    """Explain the JSON that a command prints, field by field; without one, the exit codes.

    A ? behind a field's name says that it is absent where there is nothing to tell.
    """
    from kvctl.cli.shape import lines_of
    from kvctl.cli.shapes import EXIT_CODES, SHAPES, shapes_of

    if not command:
        table = plain_table("exit code", "meaning", right=("exit code",))
        for code, meaning in EXIT_CODES.items():
            table.add_row(str(code), meaning)
        print_table(table)
        names = dict.fromkeys(name.split()[0] for name in SHAPES)
        stdout_console().print(f"\nkvctl explain COMMAND tells its JSON: {', '.join(names)}")
        return
    for number, (name, shape) in enumerate(shapes_of(" ".join(command)).items()):
        if number:
            print()
        stdout_console().print(f"{name}: {shape.what}", style="bold")
        table = plain_table("field", "type", "meaning")
        for row in lines_of(shape):
            table.add_row(*row)
        print_table(table)
