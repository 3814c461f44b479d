"""`kvctl report`: a capture into a page for an incident review."""

from __future__ import annotations

from typing import Annotated

import typer

from kvctl.cli.captureoptions import (
    Captures,
    GpuBlocks,
    OnlyPod,
    Plot,
    RemovalsOption,
    UntilOption,
)
from kvctl.cli.completers import complete_file
from kvctl.cli.options import Force
from kvctl.cli.panels import EVENTS, OUTPUT


def report(
    captures: Captures,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help="A new file FILE.html or FILE.json, readable by you alone; or on stdout: - or "
            "html for the page, json, table.",
            metavar="FILE|-|json|table",
            autocompletion=complete_file,
            rich_help_panel=OUTPUT,
        ),
    ] = "table",
    force: Force = False,
    plot: Plot = False,
    pod: OnlyPod = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Begin the report at this time (epoch seconds, ISO 8601); what was before is in "
            "the index.",
            metavar="TIME",
            rich_help_panel=EVENTS,
            show_default=False,
        ),
    ] = None,
    until: UntilOption = None,
    removals: RemovalsOption = "count",
    num_gpu_blocks: GpuBlocks = None,
) -> None:
    """Tell what happened in a capture: findings, charts.

    Findings in words, entries and events over time, clears, gaps and restarts, the biggest shared
    prefixes. The page is one HTML file that needs nothing else, to read, to print, to attach to a
    postmortem. It names pods and block hashes, no tokens; kvctl capture redact hides those too.

    Examples:
      kvctl report incident.kvcap -o report.html
      kvctl report incident.kvcap --since 2026-12-01T07:04:15Z -o later.html
      kvctl report demo:fleet --plot
      kvctl report demo:fleet -o json | jq -r '.findings[].what'
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
