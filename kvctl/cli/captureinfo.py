"""How `kvctl capture info` shows a capture."""

from __future__ import annotations

from datetime import UTC, datetime

from kvctl.capture import CaptureInfo
from kvctl.cli.output import plain_table, stdout_console
from kvctl.text import plural, printable


def print_info(info: CaptureInfo) -> None:
    """The file in a few lines, then a table of its streams."""
    console = stdout_console()
    made_by = f", by kvctl {printable(info.header.kvctl)}" if info.header.kvctl else ""
    size = f"{info.size:,} bytes" if info.size else "size not known"  # of a pipe
    console.print(f"{printable(info.source)}: {size}{made_by}")
    if info.first_ts is not None and info.last_ts is not None:
        console.print(
            f"received {_time(info.first_ts)} to {_time(info.last_ts)} "
            f"({info.last_ts - info.first_ts:,.1f} s)"
        )
    tally = info.tally
    events = ", ".join(f"{count:,} {name}" for name, count in tally.events.items())
    console.print(f"{plural(tally.batches, 'batch')}: {events}")
    console.print(
        f"{plural(len(tally.gaps), 'gap')} marked ({plural(tally.missing, 'batch')} lost), "
        f"{plural(len(tally.restarts), 'restart')}, {plural(info.notes, 'note')}, "
        f"{tally.undecodable:,} undecodable"
    )
    console.print()
    numbers = ("rank", "batches", "first seq", "last seq", "jumps", "returns")
    table = plain_table("pod", *numbers, "topics", right=numbers)
    for stream in info.streams:
        table.add_row(
            printable(stream.pod),
            str(stream.rank),
            f"{stream.batches:,}",
            str(stream.first_seq),
            str(stream.last_seq),
            str(stream.seq_jumps),
            str(stream.seq_returns),
            printable(" ".join(sorted(stream.topics))),
        )
    console.print(table)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
