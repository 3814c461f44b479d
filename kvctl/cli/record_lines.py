"""Records as lines for people: one an event, gaps and restarts loud."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvctl.events import (
    Batch,
    BlockHash,
    BlockRemoved,
    BlockStored,
    Event,
    Gap,
    Record,
    Restart,
    Undecodable,
    UnknownEvent,
    event_type,
    hash_text,
    stream_of,
)
from kvctl.text import plural, printable

if TYPE_CHECKING:
    from rich.color import ColorSystem
    from rich.console import Console

_POD_COLOURS = ("cyan", "magenta", "blue", "green", "bright_cyan", "bright_magenta", "bright_blue")
_HASHES_SHOWN = 3
_HASH_WIDTH = 8


class LineWriter:
    """Writes records to a console, a line each, cut to the terminal's width.

    Styles are rendered by hand, a few microseconds a line: a table cell's worth of layout for each
    event of a busy fleet would make the reader fall behind the streams.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._crop = console.is_terminal
        self._color_system = _color_system_of(console)
        self._colours: dict[str, str] = {}
        self._next_colour = itertools.cycle(_POD_COLOURS)
        self._pod_width = 0

    def write(self, record: Record, events: list[Event] | None = None) -> int:
        """Write the record (of a batch only ``events``, where given); returns the lines written."""
        lines = 0
        for style, body in _bodies(record, events):
            self._write_line(record, style, body)
            lines += 1
        return lines

    def note(self, text: str, style: str = "dim") -> None:
        """A line that belongs to no stream."""
        self._out([(printable(text), style)])

    def flush(self) -> None:
        """Hand what is written to the terminal or pipe."""
        self._console.file.flush()

    def _write_line(self, record: Record, style: str, body: str) -> None:
        pod, rank = stream_of(record)
        name = printable(pod) + (f"/{rank}" if rank else "")
        self._pod_width = max(self._pod_width, min(len(name), 24))
        colour = self._colours.get(pod)
        if colour is None:
            colour = self._colours[pod] = next(self._next_colour)
        seq = f"#{record.wire.seq}" if isinstance(record, (Batch, Undecodable)) else ""
        self._out([(f"{name:<{self._pod_width}}", colour), (f" {seq:<7} ", "dim"), (body, style)])

    def _out(self, parts: list[tuple[str, str]]) -> None:
        room = self._console.width if self._crop else None
        out = []
        for text, style in parts:
            shown = text if room is None else _cut(text, room)
            if room is not None:
                room -= len(shown)
            out.append(self._styled(shown, style))
        self._console.file.write("".join(out) + "\n")

    def _styled(self, text: str, style: str) -> str:
        if self._color_system is None or not style:
            return text
        return self._console.get_style(style).render(text, color_system=self._color_system)


def _cut(text: str, room: int) -> str:
    from rich.cells import cell_len, set_cell_size

    if len(text) <= room and (text.isascii() or cell_len(text) <= room):
        return text
    return set_cell_size(text, room - 1) + "…" if room > 1 else ""


def _color_system_of(console: Console) -> ColorSystem | None:
    from rich.color import ColorSystem

    if console.no_color or console.color_system is None:
        return None
    return {
        "standard": ColorSystem.STANDARD,
        "256": ColorSystem.EIGHT_BIT,
        "truecolor": ColorSystem.TRUECOLOR,
    }.get(console.color_system)


def _bodies(record: Record, events: list[Event] | None) -> Iterator[tuple[str, str]]:
    if isinstance(record, Batch):
        for event in record.events.events if events is None else events:
            yield _event_body(event)
    elif isinstance(record, Undecodable):
        yield "bold red", f"UNDECODABLE {printable(record.error)}"
    elif isinstance(record, Gap):
        seqs = f"seq {record.from_seq}" + (
            f" to {record.to_seq}" if record.to_seq != record.from_seq else ""
        )
        what = f"{plural(record.missing, 'batch')} ({seqs})"
        why = f": {printable(record.reason)}" if record.reason else ""
        if record.recovered:
            yield "yellow", f"GAP recovered, {what}{why}"
        else:
            yield "bold red", f"GAP {what} lost{why}"
    elif isinstance(record, Restart):
        yield "bold red", f"RESTART {printable(record.reason)}; entries of this stream are void"
    else:
        yield "yellow", f"note: {printable(record.text)}"


def _event_body(event: Event) -> tuple[str, str]:
    if isinstance(event, BlockStored):
        count = len(event.block_hashes)
        parent = "root" if event.parent_block_hash is None else _short(event.parent_block_hash)
        words = [
            f"stored  {plural(count, 'block')}",
            f"{len(event.token_ids)} tok",
            *_where(event),
            f"after {parent}",
        ]
        if event.lora_name is not None:
            words.append(f"lora={printable(event.lora_name)}")
        elif event.lora_id is not None:
            words.append(f"lora=#{event.lora_id}")
        if event.extra_keys and any(event.extra_keys):
            words.append("extra keys")
        # What may be cut off at the terminal's edge comes last.
        return "", "  ".join([*words, _short_hashes(event.block_hashes)])
    if isinstance(event, BlockRemoved):
        count = len(event.block_hashes)
        words = [f"removed {plural(count, 'block')}", *_where(event)]
        return "dim", "  ".join([*words, _short_hashes(event.block_hashes)])
    if isinstance(event, UnknownEvent):
        return "yellow", f"unknown event {printable(event.type)}"
    return "bold yellow", f"CLEARED {event_type(event)}"


def _where(event: BlockStored | BlockRemoved) -> list[str]:
    medium = printable(event.medium) if event.medium else "GPU"
    group = f" group {event.group_idx}" if event.group_idx else ""
    return [medium + group]


def _short_hashes(hashes: list[BlockHash]) -> str:
    shown = " ".join(_short(block_hash) for block_hash in hashes[:_HASHES_SHOWN])
    more = len(hashes) - _HASHES_SHOWN
    return f"{shown} +{more}" if more > 0 else shown or "-"


def _short(block_hash: BlockHash) -> str:
    text = hash_text(block_hash)
    return text if len(text) <= _HASH_WIDTH else f"{text[:_HASH_WIDTH]}…"
