"""`kvctl capture`: look into capture files, convert them, make them fit to be shared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from kvctl.cli.completers import complete_capture, complete_capture_file, complete_file
from kvctl.cli.group import command_group
from kvctl.cli.options import OUTPUT_OPTION, Force
from kvctl.cli.panels import SAFETY

app = command_group(
    "capture",
    """Look into capture files, convert them, redact them.

    Examples:
      kvctl capture info incident.kvcap
    """,
)

Source = Annotated[
    str,
    typer.Argument(
        metavar="CAPTURE",
        help="A capture file, demo:NAME, or - for stdin.",
        autocompletion=complete_capture,
    ),
]
Target = Annotated[
    Path,
    typer.Argument(
        metavar="TARGET",
        help="The new file: .kvcap or .jsonl, with .zst behind it to compress.",
        autocompletion=complete_capture_file,
    ),
]


@app.command()
def info(
    source: Source,
    output: Annotated[Literal["table", "json"], OUTPUT_OPTION] = "table",
) -> None:
    """Show what a capture holds: span, pods, batches, events, gaps, size.

    Examples:
      kvctl capture info demo:fleet
      kvctl capture info incident.kvcap.zst -o json | jq .gaps
    """
    from kvctl.capture import capture_info
    from kvctl.cli.captureinfo import print_info
    from kvctl.cli.output import print_json, warn

    found = capture_info(source)
    for text in found.warnings:
        warn(f"{source}: {text}")
    if output == "json":
        print_json(found.to_dict())
    else:
        print_info(found)


@app.command()
def convert(source: Source, target: Target, force: Force = False) -> None:
    """Convert a capture: .kvcap to JSON lines and back, compressed or not.

    Examples:
      kvctl capture convert recording.jsonl recording.kvcap.zst
      kvctl capture convert demo:fleet fleet.jsonl
    """
    from kvctl.capture.convert import convert as convert_capture
    from kvctl.cli.output import say, warn
    from kvctl.text import plural

    with _told_if_partial(target):
        done = convert_capture(source, target, force=force)
    for text in done.warnings:
        warn(f"{source}: {text}")
    say(f"{target}: {plural(done.records, 'record')} written")


@app.command()
def redact(
    source: Source,
    target: Target,
    key_file: Annotated[
        Path | None,
        typer.Option(
            help="A file with a secret: captures redacted with the same one share their "
            "pseudonyms. Default: a random key, forgotten afterwards.",
            autocompletion=complete_file,
            rich_help_panel=SAFETY,
            show_default=False,
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Make a capture fit to be shared: pseudonyms for all it names.

    Token ids, block hashes and names are replaced, and every equality is kept. Prefix structure,
    gaps and times stay, so the capture still shows the fault and can be attached to a public
    report. Token frequencies stay too: who knows a prompt can recognise that it was there.

    Examples:
      kvctl capture redact incident.kvcap public.kvcap
      kvctl capture redact incident.kvcap public.kvcap --key-file secret --force
    """
    import secrets

    from kvctl.capture.redact import redact as redact_capture
    from kvctl.cli.output import say, warn
    from kvctl.operate.keyfile import read_key
    from kvctl.text import plural

    key = secrets.token_bytes(32) if key_file is None else read_key(key_file)
    with _told_if_partial(target):
        done = redact_capture(source, target, key=key, force=force)
    for text in done.warnings:
        warn(f"{source}: {text}")
    say(f"{target}: {plural(done.records, 'record')} written")
    if done.undecodable:
        say(f"{plural(done.undecodable, 'undecodable payload')} could not be redacted: left empty")


@contextmanager
def _told_if_partial(target: Path) -> Iterator[None]:
    """Say on Ctrl-C that the copy is a part, if it had begun."""
    from kvctl.capture.copying import CopyInterrupted
    from kvctl.cli.output import say

    try:
        yield
    except CopyInterrupted:
        say(f"{target}: interrupted, it holds what had been read by then")
        raise
