"""The options that tell of a prompt besides its tokens."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from kvctl.cli.panels import PROMPT

Lora: TypeAlias = Annotated[
    str | None,
    typer.Option("--lora", help="LoRA of the prompt.", rich_help_panel=PROMPT, show_default=False),
]

Salt: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--salt",
        metavar="SALT",
        help="cache_salt of the prompt.",
        rich_help_panel=PROMPT,
        show_default=False,
    ),
]
