"""`kvctl replay`: captures into a prefix index."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from kvctl.cli.routeroptions import Router, RunningRequests, Seed

_INDEX = "How the index takes events"
_MATCH = "Prefix match"
_PUBLISH = "Publish again"


def replay(
    captures: Annotated[
        list[str],
        typer.Argument(
            metavar="CAPTURE...",
            help="Capture files, demo:NAME for a shipped recording, - for stdin; read in order.",
            show_default=False,
        ),
    ],
    pod: Annotated[
        list[str] | None,
        typer.Option("--pod", help="Only this pod's batches.", metavar="POD", show_default=False),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            help="Stop each stream behind this seq, or all at this time (epoch seconds, ISO 8601).",
            metavar="SEQ|TIME",
            show_default=False,
        ),
    ] = None,
    step: Annotated[
        bool,
        typer.Option("--step", help="Walk batch by batch and show what each changed."),
    ] = False,
    plot: Annotated[
        bool,
        typer.Option(
            "--plot",
            help="Also draw entries and event rate over time (needs kvctl\\[plot]).",
        ),
    ] = False,
    output: Annotated[
        Literal["table", "json", "jsonl"],
        typer.Option("--output", "-o", help="jsonl goes with --step."),
    ] = "table",
    policy: Annotated[
        Literal["purge", "noop", "aibrix"],
        typer.Option(
            help="What a clear does: purge the pod, nothing (AIBrix before PR #2385), or purge "
            "one LoRA's entries (AIBrix since).",
            rich_help_panel=_INDEX,
        ),
    ] = "purge",
    removals: Annotated[
        Literal["count", "first"],
        typer.Option(
            help="A block stored twice goes with its last removal (count) or its first.",
            rich_help_panel=_INDEX,
        ),
    ] = "count",
    num_gpu_blocks: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="The engines' num_gpu_blocks: warn about an index above what they can hold.",
            rich_help_panel=_INDEX,
            show_default=False,
        ),
    ] = None,
    save: Annotated[
        str | None,
        typer.Option(
            help="Keep the index: sqlite:FILE or a path, or redis://… as llm-d does. What is in it "
            "already counts once.",
            metavar="URL",
            rich_help_panel=_INDEX,
            show_default=False,
        ),
    ] = None,
    match: Annotated[
        str | None,
        typer.Option(
            help="Who holds this prompt: token ids (1,2,3 or a JSON list), or a file of them.",
            metavar="TOKENS|FILE",
            rich_help_panel=_MATCH,
            show_default=False,
        ),
    ] = None,
    match_block: Annotated[
        str | None,
        typer.Option(
            help="Who holds the prefix that ends in this block.",
            metavar="HASH",
            rich_help_panel=_MATCH,
            show_default=False,
        ),
    ] = None,
    lora: Annotated[
        str | None,
        typer.Option(help="LoRA of the prompt.", rich_help_panel=_MATCH, show_default=False),
    ] = None,
    salt: Annotated[
        str | None,
        typer.Option(help="cache_salt of the prompt.", rich_help_panel=_MATCH, show_default=False),
    ] = None,
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
            help="Tempo: 1 as recorded, 10 ten times that, 0 at once.",
            rich_help_panel=_PUBLISH,
        ),
    ] = 1.0,
    wait: Annotated[
        float,
        typer.Option(
            min=0,
            help="Seconds to wait for subscribers before the first batch.",
            rich_help_panel=_PUBLISH,
        ),
    ] = 10.0,
    linger: Annotated[
        float,
        typer.Option(
            min=0,
            help="Seconds to go on serving the replay after the last.",
            rich_help_panel=_PUBLISH,
        ),
    ] = 1.0,
) -> None:
    """Turn captures into a prefix index and tell what is in it.

    [bold]Examples[/bold]

      kvctl replay demo:fleet

      kvctl replay incident.kvcap --until 2026-11-30T12:00:00Z -o json | jq .index

      kvctl replay demo:warm --match-block 17947236533183116972

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
