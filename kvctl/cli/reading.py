"""Reads captures for a command: a bar for long ones, warnings told and kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from kvctl.capture import CaptureReader, Stored, open_capture
from kvctl.cli.output import somebody_looks_on, stderr_console, warn
from kvctl.events import Record
from kvctl.stream import order_capture

# A shorter capture is done before a bar could be read.
_BAR_FROM_BYTES = 4_000_000
_BAR_EVERY = 1024


class Captures:
    """Captures one after the other, of the ``pods`` that are named, or of all.

    ``warnings`` has what reading them complained of, with the capture's name.
    """

    def __init__(self, sources: Sequence[str], pods: Collection[str]) -> None:
        self.warnings: list[str] = []
        self._sources = sources
        self._pods = pods

    def records(self) -> Iterator[Record]:
        """What they hold, in stream order."""
        return order_capture(self._stored())

    def _stored(self) -> Iterator[Stored]:
        for source in self._sources:
            with open_capture(source) as reader, _progress(reader) as advance:
                for number, record in enumerate(reader):
                    if number % _BAR_EVERY == 0:
                        advance(reader.position)
                    if not self._pods or record.pod in self._pods:
                        yield record
                for text in reader.warnings:
                    warn(f"{source}: {text}")
                    self.warnings.append(f"{source}: {text}")


@contextmanager
def _progress(reader: CaptureReader) -> Iterator[Callable[[int], None]]:
    """A bar on stderr for a long capture on a terminal; yields what moves it."""
    if reader.size < _BAR_FROM_BYTES or not somebody_looks_on():
        yield lambda _position: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("reading"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=stderr_console(),
        transient=True,
    )
    with bar:
        task = bar.add_task("reading", total=reader.size)
        yield lambda position: bar.update(task, completed=position)
