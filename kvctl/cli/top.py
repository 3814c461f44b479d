"""`kvctl top`: the fleet as it goes."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from kvctl.cli.options import OUTPUT_OPTION, AnswerTimeout, Interval
from kvctl.cli.panels import OUTPUT, TIME
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
    interval: Interval = 2.0,
    count: Annotated[
        int | None,
        typer.Option(
            "--count",
            "-n",
            min=1,
            help="End after so many rounds.",
            rich_help_panel=TIME,
            show_default=False,
        ),
    ] = None,
    sort: Annotated[
        Literal["pod", "state", "events", "stored", "removed", "entries", "missing", "hit"],
        typer.Option(
            metavar="COLUMN",
            help="By this column, numbers with the largest first: pod, state, events, stored, "
            "removed, entries, missing, hit.",
            rich_help_panel=OUTPUT,
        ),
    ] = "pod",
    timeout: AnswerTimeout = 5.0,
    output: Annotated[Literal["table", "json", "jsonl"], OUTPUT_OPTION] = "table",
) -> None:
    """Watch pods live: states, rates, entries, losses.

    The hit rate is the engine's own, of the tokens asked for since the round before. json tells one
    round, jsonl an object each round. Ctrl-C ends it.

    Examples:
      kvctl top --context prod
      kvctl top 10.0.0.7 --sort events --interval 1
      kvctl top -n 1 -o json | jq '.pods[] | select(.hit_rate < 0.5)'
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
