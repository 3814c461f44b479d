"""`kvctl top`: the fleet as it goes."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from kvctl.cli.podoptions import (
    NOT_IN_KUBERNETES,
    ContextOption,
    InKubernetes,
    PodNames,
    PodOption,
    names_kubernetes,
)


@names_kubernetes
def top(
    names: PodNames = None,
    pod: PodOption = None,
    context: ContextOption = None,
    kubernetes: InKubernetes = NOT_IN_KUBERNETES,
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between looks.")] = 2.0,
    count: Annotated[
        int | None,
        typer.Option("--count", "-n", min=1, help="Stop after so many looks.", show_default=False),
    ] = None,
    sort: Annotated[
        Literal["pod", "state", "events", "stored", "removed", "entries", "missing", "hit"],
        typer.Option(help="By which column; numbers with the largest first."),
    ] = "pod",
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds for an engine or a replay to answer.")
    ] = 5.0,
    output: Annotated[Literal["table", "json", "jsonl"], typer.Option("--output", "-o")] = "table",
) -> None:
    """Watch pods live: state, event and block rates, entries, losses, hit rate.

    The hit rate is the engine's own, of the tokens asked for since the look before. json tells one
    look, jsonl an object each look. Ctrl-C ends it.

    [bold]Examples[/bold]

      kvctl top --context prod

      kvctl top 10.0.0.7 --sort events --interval 1

      kvctl top --context prod -n 1 -o json | jq '.pods[] | select(.state != "awake")'
    """
    from kvctl.cli.podoptions import context_key, resolve_pods
    from kvctl.cli.topping import Topping

    looks = 1 if output == "json" and count is None else count
    code = Topping(
        resolve_pods(names or [], pod or [], context, kubernetes),
        api_key=context_key(context),
        interval=interval,
        count=looks,
        sort=sort,
        timeout=timeout,
        output=output,
    ).run()
    if code:
        raise typer.Exit(code)
