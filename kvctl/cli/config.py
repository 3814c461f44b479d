"""`kvctl config`: the contexts of config.toml."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from kvctl.cli.group import command_group

app = command_group("config", "Look at and change config.toml, where contexts name fleets.")


@app.command()
def view(
    output: Annotated[Literal["table", "json"], typer.Option("--output", "-o")] = "table",
) -> None:
    """Show the contexts and their pods.

    [bold]Examples[/bold]

      kvctl config view
    """
    from kvctl.cli.configview import print_config
    from kvctl.fleet import load_config

    print_config(load_config(), output)


@app.command("use-context")
def use(context: Annotated[str, typer.Argument(help="A context of config.toml.")]) -> None:
    """Make a context the one that holds where none is named.

    [bold]Examples[/bold]

      kvctl config use-context prod
    """
    from kvctl.cli.output import say
    from kvctl.fleet import use_context

    config = use_context(context)
    say(f"{config.path}: the current context is {context}")


@app.command("set-pod")
def put(
    pod: Annotated[
        str,
        typer.Argument(metavar="KEY=VALUE,…", help="The pod, as --pod takes it: name=, host=, …"),
    ],
    context: Annotated[
        str | None,
        typer.Option(
            "--context",
            envvar="KVCTL_CONTEXT",
            help="The context to put it in, made if need be. Default: the current one.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Add a pod to a context, or change it.

    [bold]Examples[/bold]

      kvctl config set-pod name=pod-a,host=10.0.0.7,model=tiny --context prod
    """
    from kvctl.cli.output import say
    from kvctl.errors import UsageError
    from kvctl.fleet import load_config, set_pod

    config = load_config()
    name = context or config.current
    if not name:
        raise UsageError("no context is current", remedy="name one with --context")
    done = set_pod(name, pod)
    say(f"{config.path}: context {name} has pod {done.name}")
