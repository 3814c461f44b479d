"""`kvctl tail`: live events of pods."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kvctl.cli.podoptions import (
    NOT_IN_KUBERNETES,
    ContextOption,
    InKubernetes,
    PodNames,
    PodOption,
    names_kubernetes,
)

if TYPE_CHECKING:
    from kvctl.cli.tailing import Tailing


class EventType(StrEnum):
    """Types of events that --type takes (typer takes no list of literals)."""

    STORED = "BlockStored"
    REMOVED = "BlockRemoved"
    CLEARED = "AllBlocksCleared"


_WHICH = "Which events"
_WHERE = "Where they go"
_WHEN = "When it starts and ends"


@names_kubernetes
def tail(
    pods: PodNames = None,
    pod: PodOption = None,
    context: ContextOption = None,
    kubernetes: InKubernetes = NOT_IN_KUBERNETES,
    types: Annotated[
        list[EventType] | None,
        typer.Option("--type", help="Only events of this type.", rich_help_panel=_WHICH),
    ] = None,
    lora: Annotated[
        list[str] | None,
        typer.Option(
            help="Only stores of this LoRA; an empty name means the base model.",
            rich_help_panel=_WHICH,
        ),
    ] = None,
    block_hash: Annotated[
        list[str] | None,
        typer.Option(
            "--hash",
            help="Only events that name a block hash beginning so.",
            rich_help_panel=_WHICH,
        ),
    ] = None,
    medium: Annotated[
        list[str] | None,
        typer.Option(help="Only events of this medium.", rich_help_panel=_WHICH),
    ] = None,
    capture: Annotated[
        Path | None,
        typer.Option(
            help="Also write every batch, verbatim and unfiltered, to this capture file "
            "(.kvcap, .kvcap.zst or .jsonl).",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Overwrite the capture file.", rich_help_panel=_WHERE),
    ] = False,
    append: Annotated[
        bool,
        typer.Option("--append", help="Continue the capture file.", rich_help_panel=_WHERE),
    ] = False,
    index: Annotated[
        str | None,
        typer.Option(
            help="Also keep an index of what the events say: sqlite:FILE or a path; or feed "
            "llm-d's, redis://…. A later run goes on where this one stopped.",
            metavar="URL",
            rich_help_panel=_WHERE,
            show_default=False,
        ),
    ] = None,
    own_keys: Annotated[
        bool,
        typer.Option(
            "--own-keys",
            help="In Redis, note where it stopped beside llm-d's keys, under kvctl:….",
            rich_help_panel=_WHERE,
        ),
    ] = False,
    stats: Annotated[
        bool,
        typer.Option(
            "--stats", help="A summary a second instead of events.", rich_help_panel=_WHERE
        ),
    ] = False,
    output: Annotated[
        Literal["table", "jsonl"] | None,
        typer.Option(
            "--output",
            "-o",
            help="Lines for people or JSON objects. Default: table on a terminal, else jsonl.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    replay: Annotated[
        bool,
        typer.Option(
            "--replay/--no-replay",
            help="Begin with what the engine's replay buffer holds, and fill gaps from it.",
            rich_help_panel=_WHEN,
        ),
    ] = True,
    since_seq: Annotated[
        int,
        typer.Option(min=0, help="Begin the replay at this seq.", rich_help_panel=_WHEN),
    ] = 0,
    count: Annotated[
        int | None,
        typer.Option(min=1, help="End after so many events.", rich_help_panel=_WHEN),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0, help="End after so many seconds.", rich_help_panel=_WHEN),
    ] = None,
    connect_timeout: Annotated[
        float,
        typer.Option(
            min=0,
            help="Say so when an endpoint has not answered after so many seconds; end if none has.",
            rich_help_panel=_WHEN,
        ),
    ] = 10.0,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            help="Keep trying endpoints that nobody serves, and wait for a pod in Kubernetes.",
            rich_help_panel=_WHEN,
        ),
    ] = False,
) -> None:
    """Show the live events of pods, a line each.

    A pod is the name of one given with --pod or in a context, or an address: `10.0.0.7`,
    `10.0.0.7:5557`, `tcp://[fd00::7]:5557`. What begins late or goes missing is filled from the
    engine's replay where it has one; what is lost for good is shown as a gap. Pods in Kubernetes
    are followed as they come and go.

    [bold]Examples[/bold]

      kvctl tail 10.0.0.7

      kvctl tail --pod name=pod-a,host=10.0.0.7 --type AllBlocksCleared --type BlockRemoved

      kvctl tail -n prod --preset aibrix

      kvctl tail pod-a --capture incident.kvcap.zst --timeout 60

      kvctl tail pod-a -o jsonl | jq 'select(.type == "Gap")'
    """
    import sys

    from kvctl.cli.podoptions import follow_pods, parse_pods, resolve_pods
    from kvctl.cli.tailing import Tailing, TailOptions
    from kvctl.events import EventFilter

    options = TailOptions(
        events=EventFilter(
            types=frozenset(types or ()),
            loras=frozenset(lora or ()),
            media=frozenset(each.upper() for each in medium or ()),
            hashes=tuple(block_hash or ()),
        ),
        lines=(output or ("table" if sys.stdout.isatty() else "jsonl")) == "table",
        stats=stats,
        count=count,
        timeout=timeout,
        connect_timeout=connect_timeout,
        follow=follow,
        replay=replay,
        since_seq=since_seq,
        capture=capture,
        force=force,
        append=append,
        index=index,
        own_keys=own_keys,
    )
    tailing: Tailing
    if kubernetes:
        specs = parse_pods(pod or [], kubernetes)
        tailing = Tailing(specs, options, follow_pods(pods or [], kubernetes, wait=follow))
    else:
        tailing = Tailing(resolve_pods(pods or [], pod or [], context), options)
    code = tailing.run()
    if code:
        raise typer.Exit(code)
