"""All that an operator should know of a capture, the worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from kvctl.index import IndexSummary
from kvctl.report.finding import SEVERITIES, Finding
from kvctl.report.lossfindings import beginnings, doubts, recovered, stored_again
from kvctl.report.streamfindings import (
    clocks,
    over_capacity,
    strange,
    unanchored,
    undecodable,
    unheard,
)
from kvctl.report.timeline import Timeline
from kvctl.report.wipefindings import is_window, wipes
from kvctl.report.words import clock, engine, name, seconds
from kvctl.text import plural

MOST_OF_A_KIND = 50
"""So many findings of one kind are told one by one, the heaviest first."""


def find(
    timeline: Timeline,
    summary: IndexSummary,
    warnings: Iterable[str] = (),
    *,
    absent: Iterable[str] = (),
    num_gpu_blocks: int | None = None,
) -> list[Finding]:
    """All findings, the most severe first, then by time.

    ``warnings`` are the readers', ``absent`` pods that were asked for and are not there.
    """
    kinds = (
        wipes(timeline),
        doubts(timeline),
        stored_again(timeline),
        unheard(timeline),
        beginnings(timeline),
        recovered(timeline),
        undecodable(timeline),
        over_capacity(summary, num_gpu_blocks),
        unanchored(summary),
        strange(timeline),
        clocks(timeline),
        _damage(warnings),
        _absent(absent),
    )
    by_kind: dict[str, list[Finding]] = {}
    for finding in chain.from_iterable(kinds):
        by_kind.setdefault(finding.kind, []).append(finding)
    found = [finding for kind in by_kind.values() for finding in _heaviest(kind)]
    return sorted(
        found,
        key=lambda each: (
            SEVERITIES.index(each.severity),
            float("inf") if each.begin is None else each.begin,
        ),
    )


def _heaviest(kind: list[Finding]) -> list[Finding]:
    found = sorted(kind, key=lambda each: (SEVERITIES.index(each.severity), -each.weight))
    kept, rest = found[:MOST_OF_A_KIND], found[MOST_OF_A_KIND:]
    if rest:
        first = rest[0]
        kept.append(
            Finding(
                first.severity,
                first.kind,
                f"{len(rest):,} more like these",
                "They are no worse than those that are told one by one.",
                "See the table of what happened, or the report as JSON.",
            )
        )
    return kept


def _damage(warnings: Iterable[str]) -> Iterator[Finding]:
    for text in warnings:
        yield Finding(
            "medium",
            "damage",
            name(text),
            "The file is not whole: what is missing may have changed the picture.",
            "If there is another copy of it, compare (kvctl capture info).",
        )


def _absent(pods: Iterable[str]) -> Iterator[Finding]:
    for pod in pods:
        yield Finding(
            "medium",
            "absent-pod",
            f"no batch of {name(pod)} in the capture",
            "Of what happened to it nothing can be told.",
            "kvctl capture info lists the pods that are in it.",
            pod,
        )


def headline(timeline: Timeline, found: Sequence[Finding]) -> str:
    """The report in a few sentences."""
    windows = [wipe for wipe in timeline.wipes if is_window(wipe)]
    if windows:
        longest = max(windows, key=lambda wipe: wipe.window or 0.0)
        at_least = "at least " if timeline.wipes.left_out else ""
        first = (
            f"{at_least}{plural(len(windows), 'window')} in which entries may have been stale, the "
            f"longest {seconds(longest.window or 0.0)} at most "
            f"({engine(longest.pod, longest.rank)}, from {clock(longest.after)})"
        )
        parts = [f"{first[:1].upper()}{first[1:]}"]
    else:
        parts = ["No window shows in which entries were stale"]
    tally = timeline.tally
    lost = sum(lane.lost for lane in timeline.lanes.values())
    parts.append(
        f"{plural(tally.clears, 'clear')}, {plural(len(tally.restarts), 'restart')}, "
        f"{plural(lost, 'batch')} lost"
    )
    told = Counter(each.severity for each in found)
    counts = [f"{told[each]:,} {each}" for each in SEVERITIES if told[each]]
    parts.append(f"Findings: {', '.join(counts) or 'none'}")
    return ". ".join(parts) + "."
