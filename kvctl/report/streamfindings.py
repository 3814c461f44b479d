"""Findings about streams and the index at the end: silence, clocks, what cannot be right."""

from __future__ import annotations

from collections.abc import Iterator

from kvctl.index import GPU, IndexSummary
from kvctl.report.finding import Finding
from kvctl.report.timeline import Timeline
from kvctl.report.words import engine, entries, hour, name, seconds
from kvctl.text import plural

_SILENT_S = 30.0
_SKEW_S = 2.0


def unheard(timeline: Timeline) -> Iterator[Finding]:
    """Engines with entries of which nothing was heard any more."""
    for lane in timeline.lanes.values():
        if not lane.entries or lane.last_received is None or timeline.last_received is None:
            continue
        silent = timeline.last_received - lane.last_received
        note = timeline.last_notes.get(lane.pod)
        where = engine(lane.pod, lane.rank)
        if note is not None and note.recv_ns / 1e9 > lane.last_received:
            yield Finding(
                "medium",
                "lost-sight",
                f"{where}: {name(note.text)}; nothing from it since, and "
                f"{entries(lane.entries)} believed",
                f"Its last batch was at {hour(lane.last)}. Whether it is gone, restarted or only "
                "idle the capture does not show: if it is gone, the entries are stale.",
                "kvctl pods shows whether it answers; kvctl reconcile purges it if it slept, "
                "restarted or left the fleet.",
                lane.pod,
                lane.rank,
                lane.last,
                None,
                lane.entries,
            )
        elif silent >= _SILENT_S:
            yield Finding(
                "low",
                "silent",
                f"nothing of {where} in the last {seconds(silent)} of the capture, and "
                f"{entries(lane.entries)} believed",
                "An idle or sleeping engine publishes nothing, not even that its cache was wiped.",
                "kvctl reconcile sees a sleep or a restart in its metrics; after a reset the next "
                "request to it brings the clear.",
                lane.pod,
                lane.rank,
                lane.last,
                None,
                lane.entries,
            )


def undecodable(timeline: Timeline) -> Iterator[Finding]:
    """Batches and events that could not be read."""
    for lane in timeline.lanes.values():
        if lane.undecodable:
            yield Finding(
                "medium",
                "undecodable",
                f"{plural(lane.undecodable, 'batch')} of {engine(lane.pod, lane.rank)} could not "
                "be decoded",
                "What they said is missing here, a clear perhaps.",
                "kvctl replay CAPTURE --step shows the error; kvctl capture redact makes a file "
                "for a bug report.",
                lane.pod,
                lane.rank,
                weight=lane.undecodable,
            )
    if timeline.tally.unknown:
        yield Finding(
            "low",
            "unknown-events",
            f"{plural(timeline.tally.unknown, 'event')} of a type that kvctl does not know",
            "They are counted and change no entry.",
            "A newer kvctl may know them.",
        )


def strange(timeline: Timeline) -> Iterator[Finding]:
    """Removes of what was not held."""
    for lane in timeline.lanes.values():
        if lane.strange:
            yield Finding(
                "info",
                "unknown-removes",
                f"{engine(lane.pod, lane.rank)} removed {plural(lane.strange, 'block')} that the "
                "index did not hold",
                "Harmless: they were stored before the capture began, or in a gap.",
                "Nothing.",
                lane.pod,
                lane.rank,
                weight=lane.strange,
            )


def clocks(timeline: Timeline) -> Iterator[Finding]:
    """Engines whose clock is ahead. One that is behind looks like a slow way."""
    for lane in timeline.lanes.values():
        if lane.offset is not None and lane.offset < -_SKEW_S:
            yield Finding(
                "low",
                "clock",
                f"the clock of {engine(lane.pod, lane.rank)} is {seconds(-lane.offset)} or more "
                "ahead of the recorder's",
                "Its batches came before they were made. On this page its times are too late.",
                "Set the clocks by NTP.",
                lane.pod,
                lane.rank,
                weight=-lane.offset,
            )


def over_capacity(summary: IndexSummary, num_gpu_blocks: int | None) -> Iterator[Finding]:
    """More entries than an engine has blocks."""
    for stream in summary.streams:
        held = stream.media.get(GPU, 0)
        if num_gpu_blocks is not None and held > num_gpu_blocks - 1:
            yield Finding(
                "high",
                "over-capacity",
                f"{engine(stream.pod, stream.rank)}: {held:,} entries in GPU memory, where "
                f"{num_gpu_blocks - 1:,} are possible",
                "The index believes in blocks that are gone: removes or a clear were lost.",
                "Compare with an index built anew from the replay (kvctl tail --index NEW, kvctl "
                "index diff); --removals first, if the engine reports a block's last copy only.",
                stream.pod,
                stream.rank,
                weight=held,
            )


def unanchored(summary: IndexSummary) -> Iterator[Finding]:
    """Entries that no prompt can match."""
    for stream in summary.streams:
        if stream.unanchored:
            yield Finding(
                "low",
                "unanchored",
                f"{engine(stream.pod, stream.rank)}: {stream.unanchored:,} of "
                f"{entries(stream.entries)} unanchored",
                "The blocks before them were never seen: no prompt matches them, and they are in "
                "none of the prefixes below.",
                "Start the capture with the replay's whole buffer, or before the engine.",
                stream.pod,
                stream.rank,
                weight=stream.unanchored,
            )
