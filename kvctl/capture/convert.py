"""Copies a capture into another form, record by record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kvctl.capture.copying import copying


@dataclass(frozen=True)
class ConvertSummary:
    """What was copied, and what the source's reading warned of."""

    records: int
    warnings: tuple[str, ...]


def convert(source: str | Path, target: str | Path, *, force: bool = False) -> ConvertSummary:
    """Write every record of ``source`` to ``target``, whose name chooses the form.

    The header stays too, but for JSON lines, which have none. Raises `CaptureError`; what could
    be read is written first.
    """
    with copying(source, target, force=force) as (reader, writer):
        for record in reader:
            writer.write(record)
    return ConvertSummary(writer.records, tuple(reader.warnings))
