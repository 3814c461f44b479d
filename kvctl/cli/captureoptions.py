"""The options of the commands that read captures, in the same words."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import typer

from kvctl.cli.completers import complete_capture, complete_pod
from kvctl.cli.panels import EVENTS, INDEX, OUTPUT

Captures: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="CAPTURE",
        help="Capture files, demo:NAME for a shipped recording, - for stdin; read in order.",
        autocompletion=complete_capture,
        show_default=False,
    ),
]

OnlyPod: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--pod",
        metavar="POD",
        help="Only this pod.",
        autocompletion=complete_pod,
        rich_help_panel=EVENTS,
        show_default=False,
    ),
]

UntilOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--until",
        help="Stop each stream behind this seq, or all at this time: epoch seconds, or ISO 8601.",
        metavar="SEQ|TIME",
        rich_help_panel=EVENTS,
        show_default=False,
    ),
]

RemovalsOption: TypeAlias = Annotated[
    Literal["count", "first"],
    typer.Option(
        "--removals",
        help="A block stored twice goes with its last removal (count) or its first.",
        rich_help_panel=INDEX,
    ),
]

GpuBlocks: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--num-gpu-blocks",
        min=2,
        help="The engines' num_gpu_blocks: find an index above what they can hold.",
        rich_help_panel=INDEX,
        show_default=False,
    ),
]

Plot: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--plot",
        help="Draw entries and event rate in the terminal; needs kvctl with its extra plot.",
        rich_help_panel=OUTPUT,
    ),
]
