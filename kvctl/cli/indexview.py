"""How `kvctl index show` and `kvctl replay` show an index."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvctl.cli.output import OutputFormat, plain_table, print_json, print_table, stdout_console
from kvctl.events import hash_text
from kvctl.index import Entry, IndexSummary, IndexView, StreamSummary
from kvctl.text import plural, printable

if TYPE_CHECKING:
    from rich.table import Table

    from kvctl.operate.diff import Difference, IndexDiff

_NUMBERS = ("rank", "entries", "unanchored", "group", "copies", "age")


@dataclass(frozen=True)
class EntryFilter:
    """Which entries are wanted; None means any. ``older_than`` is in seconds, by our clock."""

    pod: str | None = None
    model: str | None = None
    lora: str | None = None
    medium: str | None = None
    older_than: float | None = None

    def of(self, view: IndexView, now: float) -> Iterator[Entry]:
        """The entries that pass."""
        for entry in view.entries(self.pod):
            if self.model is not None and entry.model != self.model:
                continue
            if self.lora is not None and (entry.lora or "") != self.lora:
                continue
            if self.medium is not None and entry.medium != self.medium:
                continue
            if self.older_than is not None and not _older(entry, now, self.older_than):
                continue
            yield entry


def show_summary(summary: IndexSummary, pod: str | None, output: OutputFormat) -> None:
    """The counts per pod."""
    streams = tuple(each for each in summary.streams if pod is None or each.pod == pod)
    chosen = IndexSummary(summary.blocks, streams)
    if output == "json":
        print_json(chosen.to_dict())
        return
    if output == "jsonl":
        for name, told in chosen.to_dict()["pods"].items():
            _write({"pod": name} | told)
        return
    console = stdout_console()
    console.print(summary_table(streams))
    console.print()
    console.print(
        f"{plural(summary.blocks, 'distinct block')} in {plural(summary.entries, 'entry')}"
    )


def show_blocks(view: IndexView, wanted: EntryFilter, output: OutputFormat) -> None:
    """The entries one by one."""
    now = time.time()
    entries = wanted.of(view, now)
    if output == "json":
        print_json([entry.to_dict() for entry in entries])
    elif output == "jsonl":
        for entry in entries:
            _write(entry.to_dict())
    else:
        print_table(_entry_table(entries, now))


def show_diff(found: IndexDiff, blocks: bool, output: OutputFormat) -> bool:
    """The counts per pod, or the differences one by one; returns whether there are any."""
    pods = found.pods()
    told = [
        {"pod": each.pod, "only_a": each.only_a, "only_b": each.only_b, "both": each.both}
        for each in pods
    ]
    if output == "json":
        more = {"differences": [each.to_dict() for each in found.differences()]} if blocks else {}
        print_json({"pods": told} | more)
    elif output == "jsonl":
        for row in (each.to_dict() for each in found.differences()) if blocks else told:
            _write(row)
    elif blocks:
        table = plain_table("only in", "pod", "rank", "medium", "group", "block hash")
        for difference in found.differences():
            table.add_row(*(printable(str(cell)) for cell in _cells(difference)))
        print_table(table)
    else:
        table = plain_table("pod", "only a", "only b", "both", right=("only a", "only b", "both"))
        for each in pods:
            table.add_row(
                printable(each.pod), f"{each.only_a:,}", f"{each.only_b:,}", f"{each.both:,}"
            )
        print_table(table)
    return any(each.only_a or each.only_b for each in pods)


def _cells(difference: Difference) -> tuple[str, str, str, str, int, str]:
    return (
        difference.side,
        difference.pod,
        _rank(difference.rank),
        difference.medium,
        difference.group,
        difference.block_hash,
    )


def summary_table(streams: Iterable[StreamSummary]) -> Table:
    """A row per (pod, DP rank)."""
    table = plain_table(
        "pod", "rank", "model", "entries", "unanchored", "media", "LoRA", right=_NUMBERS
    )
    for stream in streams:
        table.add_row(
            printable(stream.pod),
            _rank(stream.rank),
            printable(stream.model or "-"),
            f"{stream.entries:,}",
            f"{stream.unanchored:,}",
            _counts(stream.media),
            _counts(stream.loras),
        )
    return table


def _entry_table(entries: Iterable[Entry], now: float) -> Table:
    table = plain_table(
        "pod", "rank", "block hash", "medium", "LoRA", "group", "copies", "age", right=_NUMBERS
    )
    for entry in entries:
        table.add_row(
            printable(entry.pod),
            _rank(entry.rank),
            ("-" if entry.block_hash is None else hash_text(entry.block_hash)) + _remark(entry),
            printable(entry.medium),
            printable(entry.lora or "-"),
            str(entry.group),
            str(entry.references),
            "-" if entry.last_stored is None else f"{max(0.0, now - entry.last_stored):,.0f} s",
        )
    return table


def _older(entry: Entry, now: float, age: float) -> bool:
    return entry.last_stored is not None and now - entry.last_stored > age


def _rank(rank: int | None) -> str:
    return "-" if rank is None else str(rank)


def _remark(entry: Entry) -> str:
    if entry.speculative:
        return " (speculative)"
    return "" if entry.anchored else " (unanchored)"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{printable(name)} {count:,}" for name, count in counts.items()) or "-"


def _write(value: object) -> None:
    sys.stdout.write(json.dumps(value, separators=(",", ":")) + "\n")
