"""Records -> a report: the one pass over a capture, and what it came to."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from kvctl import __version__
from kvctl.events import Note, Record
from kvctl.index import IndexSummary, MemoryIndex, PrefixTree, Removals
from kvctl.operate.replay import replay
from kvctl.operate.until import Until
from kvctl.report.finding import Finding
from kvctl.report.findings import find, headline
from kvctl.report.timeline import Timeline

MOST_PREFIXES = 20

# The parents of blocks that are gone are forgotten when there are so many more of them.
_FORGET_FROM = 100_000
_FORGET_EVERY = 1024


@dataclass(frozen=True)
class Report:
    """All that the page tells. ``made`` is our clock, ``sources`` are the captures by name."""

    sources: tuple[str, ...]
    made: float
    version: str
    timeline: Timeline
    summary: IndexSummary
    prefixes: PrefixTree
    findings: tuple[Finding, ...]
    headline: str
    warnings: tuple[str, ...]


def analyse(
    records: Iterable[Record],
    sources: Sequence[str],
    *,
    since: float | None = None,
    until: Until | None = None,
    removals: Removals = Removals.COUNT,
    num_gpu_blocks: int | None = None,
    pods: Collection[str] = (),
    warnings: Callable[[], Sequence[str]] = tuple,
) -> Report:
    """Take all records in, in stream order.

    ``since`` (engine time) only begins the report: what was before is in the index.
    ``warnings`` are asked for at the end: reading brings them. ``pods`` were to be looked at: that
    one is not there is a finding.
    """
    index = MemoryIndex(removals=removals, lineage=True)
    timeline = Timeline(index, since=since)
    forgetting = _Forgetting(index)

    def watch(record: Record) -> None:
        timeline.see(record)
        forgetting.one_more()

    replay(_without_later_notes(records, until), index, until=until, watch=watch)
    timeline.finish()
    summary = index.summary()
    seen = {lane.pod for lane in timeline.lanes.values()}
    told = tuple(warnings())
    found = tuple(
        find(
            timeline,
            summary,
            told,
            absent=sorted(set(pods) - seen),
            num_gpu_blocks=num_gpu_blocks,
        )
    )
    return Report(
        tuple(sources),
        time.time(),
        __version__,
        timeline,
        summary,
        index.prefixes(MOST_PREFIXES),
        found,
        headline(timeline, found),
        told,
    )


def _without_later_notes(records: Iterable[Record], until: Until | None) -> Iterator[Record]:
    """A stop in time admits every note: here one from behind it would show."""
    end = None if until is None else until.time
    for record in records:
        if end is None or not isinstance(record, Note) or record.recv_ns / 1e9 <= end:
            yield record


class _Forgetting:
    """Keeps what the index remembers of parents within twice of the entries that it holds."""

    def __init__(self, index: MemoryIndex) -> None:
        self._index = index
        self._count = 0

    def one_more(self) -> None:
        """A record was taken in."""
        self._count += 1
        if self._count % _FORGET_EVERY:
            return
        counters = self._index.counters
        entries = counters.entries_added - counters.entries_removed - counters.entries_cleared
        if self._index.remembered > 2 * entries + _FORGET_FROM:
            self._index.forget_unheld()
