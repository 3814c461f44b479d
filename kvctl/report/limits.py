"""What a capture of KV events cannot show, said for the one at hand."""

from __future__ import annotations

from collections.abc import Iterator

from kvctl.report.analysis import Report
from kvctl.report.words import seconds


def limits(report: Report) -> Iterator[str]:
    """Sentences for the end of the report."""
    timeline = report.timeline
    yield (
        "When a wipe was. An engine publishes at the end of a step, and an idle or sleeping one "
        "takes none: between its last batch before and the batch with the clear the wipe can have "
        "been at any moment. Each stale window here is the longest that it can have been."
    )
    yield (
        "A wipe of which no batch ever told: a reset of an engine that stayed idle, slept on, or "
        "ended. What a pod holds at the end is as sure as its last batch."
    )
    yield (
        "Which requests were sent where. The events carry no requests: whether a router chose a "
        "pod while its entries were stale is in the router's log."
    )
    yield (
        "When a router purged. A window ends here when the engine told of the wipe; a router "
        "that got the batch later, or not at all, went on believing."
    )
    offsets = [lane.offset for lane in timeline.lanes.values() if lane.offset is not None]
    clocks = (
        f" From an engine's clock to the recorder's it was {_range(min(offsets), max(offsets))} at "
        "least, the way included."
        if offsets
        else ""
    )
    yield (
        "One time for all. Events have the clock of their engine, gaps, restarts and notes that "
        f"of the recorder, put between the engine's batches.{clocks}"
    )
    if any(loss.cold for loss in timeline.losses):
        yield (
            "What was stored before the capture's first batch of a pod: such entries are in no "
            "count here."
        )
    if any(lane.lost for lane in timeline.lanes.values()):
        yield "What was in the batches that were lost: stores, removes and clears alike."
    yield (
        f"More than one value in {seconds(timeline.activity.width)}, in the charts: within such a "
        "slice they show the extremes and the last. Marks, tables and findings are exact."
    )


def _range(least: float, most: float) -> str:
    low, high = _signed(least), _signed(most)
    return low if low == high else f"{low} to {high}"


def _signed(span: float) -> str:
    return f"minus {seconds(-span)}" if span < 0 else seconds(span)
