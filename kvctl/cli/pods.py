"""`kvctl pods`: the fleet at a glance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kvctl.cli.options import OUTPUT_OPTION, AnswerTimeout
from kvctl.cli.podoptions import (
    NOT_IN_KUBERNETES,
    ContextOption,
    InKubernetes,
    PodNames,
    PodOption,
    names_kubernetes,
)

if TYPE_CHECKING:
    from kvctl.operate.survey import PodRow


@names_kubernetes
def pods(
    names: PodNames = None,
    pod: PodOption = None,
    context: ContextOption = None,
    kubernetes: InKubernetes = NOT_IN_KUBERNETES,
    timeout: AnswerTimeout = 5.0,
    output: Annotated[Literal["table", "json"], OUTPUT_OPTION] = "table",
) -> None:
    """Show every pod: state, entries, hit rate, stream.

    Entries stand against the engine's capacity. A pod that does not answer is a row. Exit code 1
    only where none does.

    Examples:
      kvctl pods
      kvctl pods -n serving --preset llm-d
      kvctl pods --context prod -o json | jq '.pods[] | select(.state != "awake")'
    """
    from kvctl.cli.output import print_json
    from kvctl.cli.podoptions import context_key, resolve_fleet
    from kvctl.operate.survey import survey

    fleet = resolve_fleet(names or [], pod or [], context, kubernetes)
    rows = survey(fleet.pods, api_key=context_key(context), timeout=timeout)
    if output == "json":
        told: dict[str, object] = {"pods": [row.to_dict() for row in rows]}
        if fleet.skipped and not names:
            told["skipped"] = [{"pod": each.name, "reason": each.reason} for each in fleet.skipped]
        print_json(told)
    else:
        _print(rows)
    if not any(row.answers for row in rows):
        raise typer.Exit(1)


def _print(rows: list[PodRow]) -> None:
    from kvctl.cli.output import plain_table, print_table, warn
    from kvctl.text import printable

    numbers = ("rank", "entries", "of", "hit rate", "last seq", "gaps")
    table = plain_table("pod", "rank", "model", "state", *numbers[1:], "replay", right=numbers)
    for row in rows:
        stream = row.stream
        table.add_row(
            printable(row.pod.name),
            str(row.rank),
            printable(row.model or "-"),
            row.verdict,
            f"{row.entries:,}",
            "-" if row.capacity is None else f"{row.capacity:,}",
            "-" if row.hit_rate is None else f"{row.hit_rate:.0%}",
            "-" if stream is None or stream.last_seq is None else str(stream.last_seq),
            "-" if stream is None else str(stream.gaps),
            "down" if stream is None or not stream.connected else stream.replay,
        )
    print_table(table)
    for row in rows:
        if row.state is not None and row.verdict in ("unknown", "suspect", "halted"):
            warn(f"{row.pod.name}: {row.verdict}: {row.state.reason}")
