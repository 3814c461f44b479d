"""`kvctl replay`: captures into a prefix index."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from kvctl.cli.captureoptions import (
    Captures,
    GpuBlocks,
    OnlyPod,
    Plot,
    RemovalsOption,
    UntilOption,
)
from kvctl.cli.completers import complete_file, complete_index
from kvctl.cli.options import OUTPUT_OPTION
from kvctl.cli.panels import INDEX, OUTPUT, PROMPT
from kvctl.cli.promptoptions import Lora, Salt
from kvctl.cli.routeroptions import Router, RunningRequests, Seed

_PUBLISH = "Publish again"


def replay(
    captures: Captures,
    pod: OnlyPod = None,
    until: UntilOption = None,
    step: Annotated[
        bool,
        typer.Option(
            "--step",
            help="Walk batch by batch and show what each changed.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    plot: Plot = False,
    output: Annotated[
        Literal["table", "json", "jsonl"],
        OUTPUT_OPTION,
    ] = "table",
    policy: Annotated[
        Literal["purge", "noop", "aibrix"],
        typer.Option(
            help="What a clear does: purge the pod, nothing (AIBrix before PR #2385), or purge "
            "one LoRA's entries (AIBrix since).",
            rich_help_panel=INDEX,
        ),
    ] = "purge",
    removals: RemovalsOption = "count",
    num_gpu_blocks: GpuBlocks = None,
    save: Annotated[
        str | None,
        typer.Option(
            help="Keep the index: sqlite:FILE or a path, or redis://… as llm-d does. What is in it "
            "already counts once.",
            metavar="URL",
            autocompletion=complete_index,
            rich_help_panel=INDEX,
            show_default=False,
        ),
    ] = None,
    match: Annotated[
        str | None,
        typer.Option(
            help="Who holds this prompt: token ids, as 1,2,3 or a JSON list, or a file of them.",
            metavar="TOKENS|FILE",
            autocompletion=complete_file,
            rich_help_panel=PROMPT,
            show_default=False,
        ),
    ] = None,
    match_block: Annotated[
        str | None,
        typer.Option(
            help="Who holds the prefix that ends in this block.",
            metavar="HASH",
            rich_help_panel=PROMPT,
            show_default=False,
        ),
    ] = None,
    lora: Lora = None,
    salt: Salt = None,
    router: Router = "longest",
    running: RunningRequests = None,
    seed: Seed = 0,
    publish: Annotated[
        str | None,
        typer.Option(
            help="Publish the batches again: the first stream on this endpoint, its replay on the "
            "next port, further streams on the ports behind.",
            metavar="tcp://*:PORT",
            rich_help_panel=_PUBLISH,
            show_default=False,
        ),
    ] = None,
    speed: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="FACTOR",
            help="Tempo: 1 as recorded, 10 ten times that, 0 at once.",
            rich_help_panel=_PUBLISH,
        ),
    ] = 1.0,
    wait: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="How long to wait for subscribers before the first batch.",
            rich_help_panel=_PUBLISH,
        ),
    ] = 10.0,
    linger: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="How long to go on serving the replay after the last.",
            rich_help_panel=_PUBLISH,
        ),
    ] = 1.0,
) -> None:
    """Turn captures into a prefix index, and tell of it.

    -o jsonl goes with --step.

    Examples:
      kvctl replay demo:fleet
      kvctl replay incident.kvcap --until 2026-12-01T07:04:17Z -o json | jq .index
      kvctl replay demo:warm --match-block 1780242792410849008
      kvctl replay incident.kvcap --match prompt.json --router aibrix
      kvctl replay incident.kvcap --save then.sqlite
      kvctl replay demo:fleet --step
      kvctl replay demo:fleet --plot
      kvctl replay demo:fleet --publish tcp://127.0.0.1:5557 --speed 10
    """
    from kvctl.cli.replaying import Replaying, ReplayOptions
    from kvctl.cli.routeroptions import router_options
    from kvctl.index import Removals
    from kvctl.index import policy as policy_named
    from kvctl.operate.until import parse_until

    Replaying(
        ReplayOptions(
            captures=tuple(captures),
            pods=frozenset(pod or ()),
            until=None if until is None else parse_until(until),
            step=step,
            output=output,
            policy=policy_named(policy),
            removals=Removals(removals),
            num_gpu_blocks=num_gpu_blocks,
            save=save,
            match=match,
            match_block=match_block,
            lora=lora,
            salt=salt,
            router=router_options(router, running, seed),
            plot=plot,
            publish=publish,
            speed=speed,
            wait=wait,
            linger=linger,
        )
    ).run()
