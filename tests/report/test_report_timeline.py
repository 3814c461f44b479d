"""What the timeline sees of the real recordings is what a replay says of them."""

from __future__ import annotations

import pytest
from recordings import CAPTURES, wire_batches

from kvctl.capture import open_capture
from kvctl.events import AllBlocksCleared, decode_batch
from kvctl.index import MemoryIndex
from kvctl.operate.replay import replay
from kvctl.report.analysis import Report, analyse
from kvctl.report.ratechart import columns
from kvctl.stream import order_capture

NAMES = [
    "dp2", "evict", "fleet", "hybrid", "level2", "lora", "replay-router-from0", "reset-idle",
    "restart", "salt", "sleep1", "warm", "synthetic-vllm-0.24.0",
]  # fmt: skip


def reported(name: str, **options: object) -> Report:
    with open_capture(CAPTURES / f"{name}.jsonl") as reader:
        return analyse(order_capture(reader), [name], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_it_agrees_with_the_replay(name: str) -> None:
    index = MemoryIndex()
    with open_capture(CAPTURES / f"{name}.jsonl") as reader:
        tally, _elapsed = replay(order_capture(reader), index)
    report = reported(name)
    timeline = report.timeline
    assert report.summary == index.summary()
    assert timeline.tally == tally
    assert {(lane.pod, lane.rank): lane.entries for lane in timeline.lanes.values()} == {
        (stream.pod, stream.rank): stream.entries for stream in index.summary().streams
    }
    # Every event is in a slice, and in a column of the chart.
    rows = [each for key in timeline.activity for each in timeline.activity.row(key) if each]
    assert sum(each.stores for each in rows) == tally.stores
    assert sum(each.removes for each in rows) == tally.removes
    assert sum(each.clears for each in rows) == tally.clears
    found, _width = columns(timeline, 50)
    assert len(found) <= 50
    assert sum(column.events for column in found) == sum(tally.events.values())
    for key, lane in timeline.lanes.items():
        row = [each for each in timeline.activity.row(key) if each is not None]
        assert row[-1].entries == lane.entries
        assert max(each.high for each in row) == lane.peak
    # What is told of distinct blocks adds up: matched, cut off, unanchored.
    assert sum(report.prefixes.spread.values()) + report.prefixes.cut_off <= report.summary.blocks


@pytest.mark.parametrize("name", NAMES)
def test_a_window_reaches_from_the_batch_before_to_the_clear(name: str) -> None:
    """By hand: from the recording's own frames."""
    last: dict[tuple[str, int], float] = {}
    expected = []
    for wire in wire_batches(name):
        events = decode_batch(wire.payload)
        key = (wire.pod, wire.rank)
        if any(isinstance(event, AllBlocksCleared) for event in events.events):
            expected.append((*key, wire.seq, last.get(key), events.ts))
        last[key] = events.ts
    wipes = [wipe for wipe in reported(name).timeline.wipes if wipe.kind == "clear"]
    assert [(w.pod, w.rank, w.seq, w.after, w.at) for w in wipes] == expected


def test_the_sleep_was_six_seconds_and_the_window_holds_it() -> None:
    """`sleep1`: a request, sleep, 6 s, wake; the clear came with the first step after it."""
    [wipe] = reported("sleep1").timeline.wipes
    assert wipe.entries == 1
    assert wipe.window is not None
    assert 6 < wipe.window < 11


def test_the_restart_takes_what_was_before() -> None:
    report = reported("restart")
    [wipe] = report.timeline.wipes
    first, second, third = (decode_batch(wire.payload) for wire in wire_batches("restart"))
    assert (wipe.kind, wipe.after, wipe.at) == ("restart", first.ts, second.ts)
    assert wipe.entries == len(first.events[0].block_hashes)
    lane = report.timeline.lanes["pod-b", 0]
    assert lane.entries == sum(
        len(event.block_hashes) for batch in (second, third) for event in batch.events
    )


def test_since_begins_the_report_and_keeps_the_index() -> None:
    whole = reported("fleet")
    clear = max(wipe.at or 0.0 for wipe in whole.timeline.wipes)
    late = reported("fleet", since=clear)
    assert late.summary == whole.summary
    assert late.timeline.begin is not None
    assert late.timeline.begin >= clear
    assert late.timeline.tally.batches < whole.timeline.tally.batches
    assert [wipe.at for wipe in late.timeline.wipes] == [clear]
    [wipe] = [wipe for wipe in whole.timeline.wipes if wipe.at == clear]
    assert late.timeline.lanes[wipe.pod, wipe.rank].before == wipe.entries
