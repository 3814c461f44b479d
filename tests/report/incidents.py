"""Streams of an incident, made by hand, for the tests of reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvctl.events import (
    AllBlocksCleared,
    Batch,
    BlockStored,
    Event,
    EventBatch,
    Record,
    WireBatch,
)
from kvctl.report.analysis import Report, analyse

START = 1_796_200_000.0
SIZE = 4


def at(second: float) -> float:
    """A moment, seconds from the beginning."""
    return START + second


def stored(*blocks: int, parent: int | None = None) -> BlockStored:
    """Blocks that are called by their number, behind each other."""
    tokens = [block * SIZE + place for block in blocks for place in range(SIZE)]
    return BlockStored(list(blocks), parent, tokens, SIZE)


def cleared() -> AllBlocksCleared:
    return AllBlocksCleared()


def batch(
    seq: int,
    second: float,
    *events: Event,
    pod: str = "pod-a",
    rank: int = 0,
    lag: float = 0.001,
) -> Batch:
    """A batch made at that second, which came to us ``lag`` seconds later."""
    received = round((at(second) + lag) * 1e9)
    wire = WireBatch(received, pod, rank, f"kv@{pod}@tiny".encode(errors="replace"), seq, b"")
    return Batch(wire, EventBatch(at(second), list(events), rank))


def report(records: Iterable[Record], **options: object) -> Report:
    return analyse(records, ["incident.kvcap"], **options)  # type: ignore[arg-type]


def kinds(found: Report) -> list[tuple[str, str]]:
    """Severity and kind of every finding."""
    return [(each.severity, each.kind) for each in found.findings]


def only(found: Report, kind: str):
    """The one finding of that kind."""
    [finding] = [each for each in found.findings if each.kind == kind]
    return finding


def blocks(first: int, count: int) -> Sequence[int]:
    return range(first, first + count)
