"""`kvctl completion`: print or install shell completion."""

from __future__ import annotations

from typing import Annotated

import typer

from kvctl.cli.panels import OUTPUT
from kvctl.cli.shellscripts import Shell


def completion(
    shell: Annotated[
        Shell, typer.Argument(metavar="SHELL", help="The shell to complete for: bash, zsh, fish.")
    ],
    install: Annotated[
        bool,
        typer.Option(
            "--install",
            help="Install for the current user instead of printing.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
) -> None:
    """Print or install shell completion.

    Examples:
      kvctl completion bash > kvctl.bash
      kvctl completion zsh --install
    """
    from kvctl.cli.shellscripts import install_script, script

    if not install:
        print(script(shell), end="")
        return
    from kvctl.cli.output import say

    for path in install_script(shell):
        say(f"{path} written")
    say(f"completion works in the next {shell} you open")
