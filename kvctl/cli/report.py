"""`kvctl report`: a capture into a page for an incident review."""

from __future__ import annotations

from typing import Annotated, Literal

import typer


def report(
    captures: Annotated[
        list[str],
        typer.Argument(
            metavar="CAPTURE...",
            help="Capture files, demo:NAME for a shipped recording, - for stdin; read in order.",
            show_default=False,
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help="A new file FILE.html or FILE.json, readable by you alone; or on stdout: - or "
            "html for the page, json, table.",
            metavar="FILE|-|json|table",
        ),
    ] = "table",
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    plot: Annotated[
        bool,
        typer.Option(
            "--plot",
            help="Draw entries and event rate over time in the terminal (needs kvctl\\[plot]).",
        ),
    ] = False,
    pod: Annotated[
        list[str] | None,
        typer.Option("--pod", help="Only this pod.", metavar="POD", show_default=False),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Begin the report at this time (epoch seconds, ISO 8601); what was before is in "
            "the index.",
            metavar="TIME",
            show_default=False,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            help="Stop each stream behind this seq, or all at this time (epoch seconds, ISO 8601).",
            metavar="SEQ|TIME",
            show_default=False,
        ),
    ] = None,
    removals: Annotated[
        Literal["count", "first"],
        typer.Option(help="A block stored twice goes with its last removal (count) or its first."),
    ] = "count",
    num_gpu_blocks: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="The engines' num_gpu_blocks: find an index above what they can hold.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Tell what happened in a capture: findings in words, charts over time, shared prefixes.

    The page is one HTML file that needs nothing else, to read, to print, to attach to a
    postmortem. It names pods and block hashes, no tokens; kvctl capture redact hides those too.

    [bold]Examples[/bold]

      kvctl report incident.kvcap.zst -o report.html

      kvctl report incident.kvcap --since 2026-11-30T12:00:00Z --until 2026-11-30T13:00:00Z

      kvctl report demo:fleet --plot

      kvctl report demo:fleet -o json | jq '.findings[] | select(.severity == "high")'
    """
    from kvctl.cli.reporting import ReportOptions, run_report
    from kvctl.index import Removals
    from kvctl.operate.until import parse_time, parse_until

    run_report(
        ReportOptions(
            captures=tuple(captures),
            output=output,
            force=force,
            plot=plot,
            pods=frozenset(pod or ()),
            since=None if since is None else parse_time("--since", since),
            until=None if until is None else parse_until(until),
            removals=Removals(removals),
            num_gpu_blocks=num_gpu_blocks,
        )
    )
