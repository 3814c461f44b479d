"""`kvctl completion`: print or install shell completion."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

Shell = Literal["bash", "zsh", "fish"]


def completion(
    shell: Annotated[Shell, typer.Argument(help="The shell to complete for.")],
    install: Annotated[
        bool, typer.Option("--install", help="Install for the current user instead of printing.")
    ] = False,
) -> None:
    """Print or install shell completion.

    [bold]Examples[/bold]

      kvctl completion bash > /etc/bash_completion.d/kvctl

      kvctl completion zsh --install
    """
    if install:
        from typer._completion_shared import install as install_for

        from kvctl.cli.output import say

        name, path = install_for(shell=shell, prog_name="kvctl", complete_var="_KVCTL_COMPLETE")
        say(f"{name} completion installed in {path}; it works in the next shell you open")
        return
    print(completion_script(shell))


def completion_script(shell: Shell) -> str:
    """The script that makes ``shell`` ask kvctl for completions."""
    from typer._completion_shared import get_completion_script

    return get_completion_script(prog_name="kvctl", complete_var="_KVCTL_COMPLETE", shell=shell)
