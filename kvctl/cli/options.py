"""Options that several commands have, in the same words."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from kvctl.cli.panels import OUTPUT, SAFETY, TIME

OUTPUT_OPTION = typer.Option(
    "--output",
    "-o",
    help="A table for people, or JSON for programs.",
    rich_help_panel=OUTPUT,
)
"""The option of how a result is shown. Which ways there are is the parameter's type."""

Yes: TypeAlias = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask.", rich_help_panel=SAFETY)
]

DryRun: TypeAlias = Annotated[
    bool,
    typer.Option("--dry-run", help="Only say what would be done.", rich_help_panel=SAFETY),
]

Force: TypeAlias = Annotated[
    bool,
    typer.Option("--force", help="Overwrite a file that is there.", rich_help_panel=SAFETY),
]

AnswerTimeout: TypeAlias = Annotated[
    float,
    typer.Option(
        "--timeout",
        min=0.1,
        metavar="SECONDS",
        help="How long an engine, its stream or its replay may take to answer.",
        rich_help_panel=TIME,
    ),
]

Interval: TypeAlias = Annotated[
    float,
    typer.Option(
        "--interval",
        min=0.1,
        metavar="SECONDS",
        help="From one round to the next.",
        rich_help_panel=TIME,
    ),
]
