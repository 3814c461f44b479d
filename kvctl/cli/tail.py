"""`kvctl tail`: live events of pods."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kvctl.cli.completers import complete_capture_file, complete_index, words
from kvctl.cli.indexoptions import OwnKeys
from kvctl.cli.options import OUTPUT_OPTION, Force
from kvctl.cli.panels import EVENTS, INDEX, OUTPUT, TIME
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


@names_kubernetes
def tail(
    pods: PodNames = None,
    pod: PodOption = None,
    context: ContextOption = None,
    kubernetes: InKubernetes = NOT_IN_KUBERNETES,
    types: Annotated[
        list[EventType] | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="Only events of this type: BlockStored, BlockRemoved, AllBlocksCleared.",
            rich_help_panel=EVENTS,
        ),
    ] = None,
    lora: Annotated[
        list[str] | None,
        typer.Option(
            help="Only stores of this LoRA; empty for the base model.",
            rich_help_panel=EVENTS,
        ),
    ] = None,
    block_hash: Annotated[
        list[str] | None,
        typer.Option(
            "--hash",
            metavar="PREFIX",
            help="Only events that name a block hash beginning so.",
            rich_help_panel=EVENTS,
        ),
    ] = None,
    medium: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MEDIUM",
            help="Only this medium: GPU, CPU, STORAGE.",
            rich_help_panel=EVENTS,
            autocompletion=words("GPU", "CPU", "STORAGE"),
        ),
    ] = None,
    capture: Annotated[
        Path | None,
        typer.Option(
            help="Also write every batch, verbatim and unfiltered, to this capture file: .kvcap, "
            ".kvcap.zst or .jsonl.",
            autocompletion=complete_capture_file,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    force: Force = False,
    append: Annotated[
        bool,
        typer.Option("--append", help="Continue the capture file.", rich_help_panel=OUTPUT),
    ] = False,
    index: Annotated[
        str | None,
        typer.Option(
            help="Also keep an index of what the events say: sqlite:FILE or a path; or feed "
            "llm-d's, redis://…. A later run goes on where this one stopped.",
            metavar="URL",
            rich_help_panel=INDEX,
            autocompletion=complete_index,
            show_default=False,
        ),
    ] = None,
    own_keys: OwnKeys = False,
    stats: Annotated[
        bool,
        typer.Option(
            "--stats", help="A summary a second instead of events.", rich_help_panel=OUTPUT
        ),
    ] = False,
    output: Annotated[
        Literal["table", "jsonl"] | None,
        OUTPUT_OPTION,
    ] = None,
    replay: Annotated[
        bool,
        typer.Option(
            "--replay/--no-replay",
            help="Neither begin with what the engine's replay holds, nor fill gaps from it.",
            show_default=False,
            rich_help_panel=TIME,
        ),
    ] = True,
    since_seq: Annotated[
        int,
        typer.Option(
            min=0, metavar="SEQ", help="Begin the replay at this seq.", rich_help_panel=TIME
        ),
    ] = 0,
    count: Annotated[
        int | None,
        typer.Option(min=1, help="End after so many events.", rich_help_panel=TIME),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="End after so long.", rich_help_panel=TIME),
    ] = None,
    connect_timeout: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="After so long, tell which endpoints have not answered; end if none has.",
            rich_help_panel=TIME,
        ),
    ] = 10.0,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            help="Keep trying endpoints that nobody serves, and wait for a pod in Kubernetes.",
            rich_help_panel=TIME,
        ),
    ] = False,
) -> None:
    """Show the live events of pods, a line each.

    A pod is the name of one given with --pod or in a context, or an address: `10.0.0.7`,
    `10.0.0.7:5557`, `tcp://[fd00::7]:5557`. What begins late or goes missing is filled from the
    engine's replay where it has one; what is lost for good is shown as a gap. Pods in Kubernetes
    are followed as they come and go. Lines for people on a terminal, JSON lines elsewhere.

    Examples:
      kvctl tail 10.0.0.7
      kvctl tail --context prod --type AllBlocksCleared --type BlockRemoved
      kvctl tail -n serving --preset aibrix
      kvctl tail pod-a --capture incident.kvcap.zst --timeout 60
      kvctl tail --pod name=pod-a,host=10.0.0.7 --index fleet.sqlite
      kvctl tail pod-a -o jsonl | jq 'select(.type == "Gap")'
    """
    import sys

    from kvctl.cli.podoptions import follow_pods, in_context, parse_pods, resolve_pods
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
    kubernetes = in_context(pods or [], pod or [], context, kubernetes)
    if kubernetes:
        specs = parse_pods(pod or [], kubernetes)
        tailing = Tailing(specs, options, follow_pods(pods or [], kubernetes, wait=follow))
    else:
        tailing = Tailing(resolve_pods(pods or [], pod or [], context), options)
    code = tailing.run()
    if code:
        raise typer.Exit(code)
