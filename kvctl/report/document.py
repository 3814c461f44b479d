"""The report for programs: one JSON document, the same truth as the page."""

from __future__ import annotations

from typing import Any

from kvctl.events import Note, hash_text
from kvctl.index import PrefixRun
from kvctl.report.analysis import Report
from kvctl.report.happenings import Lane


def document(report: Report) -> dict[str, Any]:
    """JSON-ready. Times are seconds since the epoch, the engines' clocks save for `received`;
    what is not known is absent."""
    timeline = report.timeline
    tally = timeline.tally
    return {
        "sources": list(report.sources),
        "kvctl": report.version,
        "made": report.made,
        **_known({"begin": timeline.begin, "end": timeline.end}),
        "headline": report.headline,
        "batches": tally.batches,
        "events": tally.events,
        "blocks_stored": tally.blocks_stored,
        "undecodable": tally.undecodable,
        "findings": [finding.to_dict() for finding in report.findings],
        "wipes": [wipe.to_dict() for wipe in timeline.wipes],
        "gaps": [loss.to_dict() for loss in timeline.losses],
        "doubts": [doubt.to_dict() for doubt in timeline.doubts],
        "stored_again": [again.to_dict() for again in timeline.again],
        "notes": [_note(note) for note in timeline.notes],
        "left_out": {
            "wipes": timeline.wipes.left_out,
            "gaps": timeline.losses.left_out,
            "doubts": timeline.doubts.left_out,
            "stored_again": timeline.again.left_out,
            "notes": timeline.notes.left_out,
        },
        "series": {
            "begin": timeline.activity.begin,
            "width_s": timeline.activity.width,
            "count": timeline.activity.count,
            "pods": [
                _lane(report, lane)
                for lane in sorted(timeline.lanes.values(), key=lambda lane: (lane.pod, lane.rank))
            ],
        },
        "prefixes": {
            "shared": report.prefixes.shared,
            "holders": {str(count): blocks for count, blocks in report.prefixes.spread.items()},
            "cut_off": report.prefixes.cut_off,
            "runs": [_run(run) for run in report.prefixes.runs],
        },
        "index": report.summary.to_dict(),
        "warnings": list(report.warnings),
    }


def _lane(report: Report, lane: Lane) -> dict[str, Any]:
    """A pod's samples: only the slices in which it did something, by their number."""
    row = report.timeline.activity.row((lane.pod, lane.rank))
    return {
        "pod": lane.pod,
        "rank": lane.rank,
        "entries_before": lane.before,
        "entries": lane.entries,
        "peak": lane.peak,
        **_known(
            {
                "peak_at": lane.peak_at,
                "first": lane.first,
                "last": lane.last,
                "last_received": lane.last_received,
                "offset_s": lane.offset,
            }
        ),
        "batches": lane.batches,
        "lost": lane.lost,
        "samples": [
            {
                "slice": place,
                "entries": there.entries,
                "low": there.low,
                "high": there.high,
                "stores": there.stores,
                "removes": there.removes,
                "clears": there.clears,
                "unknown": there.unknown,
            }
            for place, there in enumerate(row)
            if there is not None
        ],
    }


def _run(run: PrefixRun) -> dict[str, Any]:
    return {
        "begin": run.begin,
        "end": run.end,
        "blocks": run.blocks,
        "tokens": run.end * run.block_size,
        "holders": [{"pod": pod, "rank": rank} for pod, rank in run.holders],
        "continuations": run.continuations,
        "last_block": hash_text(run.last),
        "model": run.model,
        **_known({"lora": run.lora, "above": run.above}),
    }


def _note(note: Note) -> dict[str, Any]:
    return {
        "pod": note.pod,
        **_known({"rank": note.rank}),
        "received": note.recv_ns / 1e9,
        "text": note.text,
    }


def _known(told: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in told.items() if value is not None}
