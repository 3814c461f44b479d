"""Findings about what is missing: gaps, cold starts, blocks that came again."""

from __future__ import annotations

from collections.abc import Iterator

from kvctl.report.finding import Finding
from kvctl.report.happenings import Doubt
from kvctl.report.timeline import Timeline
from kvctl.report.words import engine, entries, hour, seconds
from kvctl.text import plural


def doubts(timeline: Timeline) -> Iterator[Finding]:
    """Losses that may have held a clear."""
    for doubt in timeline.doubts:
        yield _doubt(doubt)


def _doubt(doubt: Doubt) -> Finding:
    where = engine(doubt.pod, doubt.rank)
    lost = f"{plural(doubt.missing, 'batch')} of {where} lost in {plural(doubt.gaps, 'gap')}"
    again = (
        f" Since then it stored {plural(doubt.again, 'block')} anew that the index still held, "
        f"in {plural(doubt.again_in, 'batch')}: unless it announces what it reuses, it had lost "
        "them, and a clear or removes were among what is missing."
        if doubt.again
        else ""
    )
    if doubt.settled is not None:
        return Finding(
            "medium",
            "gap",
            f"{lost}; the {doubt.settled_by} at {hour(doubt.settled)} made an end of the doubt",
            f"A clear may have been among them: for {seconds(doubt.settled - doubt.begin)} it was "
            f"not sure of {entries(doubt.entries)} whether they were still there.{again}",
            "Give the pod a replay endpoint, or a longer buffer (buffer_steps): then kvctl tail "
            "fetches what is missing.",
            doubt.pod,
            doubt.rank,
            doubt.begin,
            doubt.settled,
            doubt.entries,
        )
    return Finding(
        "high" if doubt.left and doubt.again else "medium",
        "gap",
        f"{lost}; {entries(doubt.left)} from before "
        + ("remain, unconfirmed" if doubt.left != 1 else "remains, unconfirmed"),
        f"A clear may have been among what is missing, and nothing since has settled it.{again}",
        "Compare the router's index with one built anew from the replay (kvctl tail --index NEW, "
        "kvctl index diff); kvctl reset POD --purge empties both sides. A replay endpoint, or a "
        "longer buffer (buffer_steps), spares the next loss.",
        doubt.pod,
        doubt.rank,
        doubt.begin,
        None,
        doubt.left,
    )


def stored_again(timeline: Timeline) -> Iterator[Finding]:
    """Blocks stored anew although they were held, where no gap tells why."""
    by_lane: dict[tuple[str, int], list[tuple[float, int]]] = {}
    for again in timeline.again:
        by_lane.setdefault((again.pod, again.rank), []).append((again.at, again.blocks))
    for (pod, rank), times in by_lane.items():
        blocks = sum(count for _at, count in times)
        where = engine(pod, rank)
        yield Finding(
            "medium",
            "stored-again",
            f"{where} stored {plural(blocks, 'block')} anew that the index still held, in "
            f"{plural(len(times), 'batch')}, without a gap",
            "An engine reports a block again only if it had lost it, save for the last block of "
            "a prompt. Its removes or its clear never came, or it announces what it reuses.",
            "Look whether its removes are complete (kvctl doctor: capacity), and whether it "
            "reports reused blocks: then references are counted too high.",
            pod,
            rank,
            min(at for at, _blocks in times),
            max(at for at, _blocks in times),
            blocks,
        )


def beginnings(timeline: Timeline) -> Iterator[Finding]:
    """What was before a stream's first batch here."""
    for loss in timeline.losses:
        if loss.cold and not loss.recovered:
            yield Finding(
                "low",
                "cold-start",
                f"{engine(loss.pod, loss.rank)}: {plural(loss.missing, 'batch')} before the "
                "capture's first are not in it",
                "What it stored in them is missing here: it may hold more than this page says, "
                "none of it is taken for stale.",
                "Start kvctl tail before the engines, or give it a replay endpoint.",
                loss.pod,
                loss.rank,
                loss.before,
                loss.before,
                loss.missing,
            )


def recovered(timeline: Timeline) -> Iterator[Finding]:
    """Gaps that the replay filled."""
    counts: dict[tuple[str, int], list[int]] = {}
    for loss in timeline.losses:
        if loss.recovered:
            counts.setdefault((loss.pod, loss.rank), []).append(loss.missing)
    for (pod, rank), missing in counts.items():
        yield Finding(
            "info",
            "recovered",
            f"{plural(sum(missing), 'batch')} of {engine(pod, rank)} came late, from the replay, "
            f"in {plural(len(missing), 'gap')}",
            "Nothing is missing here. An index without the replay has a hole there.",
            "Nothing, if every consumer uses the replay.",
            pod,
            rank,
        )
