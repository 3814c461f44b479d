"""Records in stream order -> what happened when, while an index takes them."""

from __future__ import annotations

from kvctl.events import (
    AllBlocksCleared,
    Batch,
    BlockRemoved,
    BlockStored,
    Event,
    Gap,
    Note,
    Record,
    Restart,
    Tally,
    Undecodable,
)
from kvctl.index import MemoryIndex
from kvctl.report.happenings import Again, Doubt, Lane, Loss, Wipe
from kvctl.report.series import Activity, Sampled
from kvctl.report.worst import Worst

MOST_KEPT = 1000
"""Of wipes, losses, doubts and the like so many are kept; the others are counted."""
MOST_NOTES = 200

# One block of an event is stored twice when a request hits its whole prefix and computes the last
# block anew (vLLM). More are no accident.
_USUAL_REPEATS = 1
_LEAST_REPEATS = 2
# A restart's window is not known yet when it is weighed; a new process takes about so long.
_RESTART_S = 60.0
# Engine clocks outside of this are no time: it ends with the year 9999.
_END_OF_TIME = 253_402_300_799.0


class Timeline:
    """What a run of records shows. ``see`` takes each after ``index`` took it.

    What lies before ``since`` (engine time) makes the state that the report begins with, and is
    not counted. ``tally`` counts the rest, ``activity`` samples it.
    """

    def __init__(self, index: MemoryIndex, *, since: float | None = None) -> None:
        self.tally = Tally()
        self.activity: Sampled[tuple[str, int]] = Sampled()
        self.lanes: dict[tuple[str, int], Lane] = {}
        self.wipes: Worst[Wipe] = Worst(MOST_KEPT)
        self.losses: Worst[Loss] = Worst(MOST_KEPT)
        self.doubts: Worst[Doubt] = Worst(MOST_KEPT)
        self.again: Worst[Again] = Worst(MOST_KEPT)
        self.notes: Worst[Note] = Worst(MOST_NOTES)
        self.last_notes: dict[str, Note] = {}
        """Each pod's last."""
        self.begin: float | None = None
        self.end: float | None = None
        self.last_received: float | None = None
        """When the last record came, by our clock."""
        self._index = index
        self._since = since
        self._before = _Counts(index)

    def see(self, record: Record) -> None:
        """Take one record in."""
        counts = _Counts(self._index)
        change = counts.minus(self._before)
        self._before = counts
        if isinstance(record, Note):
            self._note(record)
        elif isinstance(record, Batch):
            self._batch(record, change)
        elif isinstance(record, Undecodable):
            self._undecodable(record)
        elif isinstance(record, Gap):
            self._gap(record)
        else:
            self._restart(record, change)

    def finish(self) -> None:
        """All was seen: find out what is left of the entries that are in doubt."""
        for lane in self.lanes.values():
            if lane.before > lane.peak:
                lane.peak, lane.peak_at = lane.before, self._since
            doubt = lane.doubt
            if doubt is not None:
                doubt.left = sum(
                    entry.rank == lane.rank
                    and entry.last_stored is not None
                    and entry.last_stored <= doubt.begin
                    for entry in self._index.entries(lane.pod)
                )

    # -- records --------------------------------------------------------------------------------

    def _batch(self, record: Batch, change: _Counts) -> None:
        wire, events = record.wire, record.events.events
        received = wire.recv_ns / 1e9
        at = record.events.ts if 0 <= record.events.ts <= _END_OF_TIME else received
        lane = self._lane(wire.pod, wire.rank)
        had = lane.entries
        counted = self._counts(at)
        clears = [
            place for place, event in enumerate(events) if isinstance(event, AllBlocksCleared)
        ]
        if clears:
            self._clear(lane, record, at, events[: clears[0]])
        lane.entries += change.added - change.removed - change.cleared
        if counted:
            self.tally.add(record)
            self._heard(lane, at, received)
            self._count(lane, events, change)
            activity = self.activity.at((lane.pod, lane.rank), at, had)
            _count_events(activity, events)
            if clears:  # how low it was before what came behind the clear
                activity.level(max(0, had - change.cleared))
            activity.level(lane.entries)
            if lane.entries > lane.peak or lane.peak_at is None:
                lane.peak, lane.peak_at = lane.entries, at
        else:
            lane.before = lane.entries
        stores = sum(isinstance(event, BlockStored) for event in events)
        repeats = change.stored - change.added
        if repeats >= stores * _USUAL_REPEATS + _LEAST_REPEATS:
            self._again(lane, wire.seq, at, repeats)
        self._arrived(lane, at, received)

    def _undecodable(self, record: Undecodable) -> None:
        lane = self._lane(record.wire.pod, record.wire.rank)
        received = record.wire.recv_ns / 1e9
        if self._counts(self._engine_time(lane, received)):
            self.tally.add(record)
            lane.undecodable += 1
            lane.batches += 1
            self._span(self._engine_time(lane, received), received)

    def _gap(self, gap: Gap) -> None:
        lane = self._lane(gap.pod, gap.rank)
        received = gap.recv_ns / 1e9
        cold = lane.last is None
        loss = Loss(
            gap.pod, gap.rank, gap.from_seq, gap.to_seq, gap.recovered, cold, gap.reason,
            lane.last, received,
        )  # fmt: skip
        if not gap.recovered and not cold and lane.entries:
            doubt = lane.doubt
            if doubt is None:
                begin = self._engine_time(lane, received) if lane.last is None else lane.last
                doubt = lane.doubt = Doubt(lane.pod, lane.rank, begin, lane.entries)
                self.doubts.add(doubt, lane.entries)
            doubt.gaps += 1
            doubt.missing += gap.missing
        lane.waiting.append(loss)
        if self._counts(self._engine_time(lane, received)):
            self.tally.add(gap)
            lane.lost += 0 if cold or gap.recovered else gap.missing
            self.losses.add(loss, 0 if cold or gap.recovered else gap.missing)
            self._received(received)

    def _restart(self, restart: Restart, change: _Counts) -> None:
        lane = self._lane(restart.pod, restart.rank)
        received = restart.recv_ns / 1e9
        at = self._engine_time(lane, received)
        had, lane.entries = lane.entries, lane.entries - change.cleared
        wipe = Wipe(
            "restart", lane.pod, lane.rank, None, lane.last, None, received, change.cleared,
            reason=restart.reason,
        )  # fmt: skip
        lane.waiting.append(wipe)
        _settle(lane, at, "restart")
        if self._counts(at):
            self.tally.add(restart)
            lane.restarts += 1
            self.wipes.add(wipe, change.cleared * _RESTART_S)
            self.activity.at((lane.pod, lane.rank), at, had).level(lane.entries)
            self._span(at, received)
        else:
            lane.before = lane.entries

    def _note(self, note: Note) -> None:
        self.last_notes[note.pod] = note
        if self._since is None or note.recv_ns / 1e9 >= self._since:
            self.notes.add(note)
            self._received(note.recv_ns / 1e9)

    # -- what they tell -------------------------------------------------------------------------

    def _clear(self, lane: Lane, record: Batch, at: float, in_front: list[Event]) -> None:
        received = record.wire.recv_ns / 1e9
        late = 0.0 if lane.offset is None else max(0.0, received - at - lane.offset)
        wipe = Wipe(
            "clear", lane.pod, lane.rank, record.wire.seq, lane.last, at, received, lane.entries,
            inside=any(isinstance(event, BlockStored) for event in in_front), late=late,
        )  # fmt: skip
        _settle(lane, at, "clear")
        if self._counts(at):
            self.wipes.add(wipe, lane.entries * (1 + (wipe.window or 0.0)))

    def _again(self, lane: Lane, seq: int, at: float, blocks: int) -> None:
        if lane.doubt is not None:
            lane.doubt.again += blocks
            lane.doubt.again_in += 1
        elif self._counts(at):
            self.again.add(Again(lane.pod, lane.rank, seq, lane.last, at, blocks), blocks)

    def _heard(self, lane: Lane, at: float, received: float) -> None:
        lane.first = at if lane.first is None else min(lane.first, at)
        self._span(at, received)

    def _arrived(self, lane: Lane, at: float, received: float) -> None:
        """The batch is done: it is what the next is compared with, and ends what waited for it."""
        for each in lane.waiting:
            if isinstance(each, Loss):
                each.before = at
            else:
                each.at = at
        lane.waiting.clear()
        lane.last = at
        lane.last_received = received
        lag = received - at
        lane.offset = lag if lane.offset is None else min(lane.offset, lag)

    def _count(self, lane: Lane, events: list[Event], change: _Counts) -> None:
        lane.batches += 1
        lane.events += len(events)
        lane.blocks_stored += change.stored
        lane.clears += change.clears
        lane.strange += change.strange

    # -- time -----------------------------------------------------------------------------------

    def _counts(self, at: float) -> bool:
        return self._since is None or at >= self._since

    def _engine_time(self, lane: Lane, received: float) -> float:
        """About when it was by the engine's clock, never before the engine's last batch."""
        if lane.offset is None or lane.last is None:
            return received
        return max(lane.last, received - lane.offset)

    def _span(self, at: float, received: float) -> None:
        self.begin = at if self.begin is None else min(self.begin, at)
        self.end = at if self.end is None else max(self.end, at)
        self._received(received)

    def _received(self, received: float) -> None:
        last = self.last_received
        self.last_received = received if last is None else max(last, received)

    def _lane(self, pod: str, rank: int) -> Lane:
        lane = self.lanes.get((pod, rank))
        if lane is None:
            lane = self.lanes[pod, rank] = Lane(pod, rank)
        return lane


class _Counts:
    """The index's counters at one moment, or what they changed by."""

    __slots__ = ("added", "cleared", "clears", "removed", "stored", "strange")

    def __init__(self, index: MemoryIndex) -> None:
        counters = index.counters
        self.stored = counters.blocks_stored
        self.added = counters.entries_added
        self.removed = counters.entries_removed
        self.cleared = counters.entries_cleared
        self.clears = counters.clears
        self.strange = counters.unknown_removed

    def minus(self, earlier: _Counts) -> _Counts:
        change = object.__new__(_Counts)
        change.stored = self.stored - earlier.stored
        change.added = self.added - earlier.added
        change.removed = self.removed - earlier.removed
        change.cleared = self.cleared - earlier.cleared
        change.clears = self.clears - earlier.clears
        change.strange = self.strange - earlier.strange
        return change


def _settle(lane: Lane, at: float, by: str) -> None:
    if lane.doubt is not None:
        lane.doubt.settled, lane.doubt.settled_by = at, by
        lane.doubt = None


def _count_events(activity: Activity, events: list[Event]) -> None:
    activity.batches += 1
    for event in events:
        if isinstance(event, BlockStored):
            activity.stores += 1
        elif isinstance(event, BlockRemoved):
            activity.removes += 1
        elif isinstance(event, AllBlocksCleared):
            activity.clears += 1
        else:
            activity.unknown += 1
