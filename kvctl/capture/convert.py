"""Copies a capture into another form, record by record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kvctl.capture.reader import open_capture
from kvctl.capture.writer import CaptureWriter


@dataclass(frozen=True)
class ConvertSummary:
    """What was copied, and what the source's reading warned of."""

    records: int
    warnings: tuple[str, ...]


def convert(source: str | Path, target: str | Path, *, force: bool = False) -> ConvertSummary:
    """Write every record of ``source`` to ``target``, whose name chooses the form.

    Raises `CaptureError`; what could be read is written first.
    """
    with (
        open_capture(source) as reader,
        CaptureWriter(target, pods=reader.header.pods, force=force) as writer,
    ):
        for record in reader:
            writer.write(record)
        return ConvertSummary(writer.records, tuple(reader.warnings))
