"""The chart of entries: a lane per engine, with what happened to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from kvctl.events import Note
from kvctl.report.axis import TimeAxis, ValueAxis, short
from kvctl.report.happenings import Lane, Loss, Wipe
from kvctl.report.markup import Markup, join, number, tag
from kvctl.report.series import Activity
from kvctl.report.timeline import Timeline
from kvctl.report.words import engine, entries, hour, name, seconds
from kvctl.text import plural

WIDTH = 1000
MOST_LANES = 64

_LEFT, _RIGHT = 130, 944
_TOP, _STEP, _HEIGHT = 22, 72, 46
_STRIP = 6
_LABEL = 14
_SHADES = 4


def lanes_chart(timeline: Timeline, lanes: Sequence[Lane]) -> Markup:
    """The drawing, for engines that were heard of."""
    assert timeline.begin is not None
    assert timeline.end is not None
    axis = TimeAxis.over(timeline.begin, timeline.end, _LEFT, _RIGHT)
    top_value = max((lane.peak for lane in lanes), default=0) or 1
    bottom = _TOP + len(lanes) * _STEP
    busiest = max(
        (
            each.events
            for lane in lanes
            for each in timeline.activity.row((lane.pod, lane.rank))
            if each is not None
        ),
        default=1,
    )
    grid = join(
        *(
            join(
                tag("line", x1=axis.x(at), x2=axis.x(at), y1=_TOP - 6, y2=bottom - 12, class_="g"),
                tag("text", label, x=axis.x(at), y=bottom + 6, class_="t m"),
            )
            for at, label in axis.ticks(8)
        )
    )
    drawn = (
        _Lane(timeline, lane, axis, _TOP + place * _STEP, top_value, busiest).draw()
        for place, lane in enumerate(lanes)
    )
    return tag(
        "svg",
        tag("title", "Entries per pod over time", id="lanes-title"),
        tag("desc", _description(timeline, lanes), id="lanes-desc"),
        _PATTERNS,
        grid,
        drawn,
        viewBox=f"0 0 {WIDTH} {bottom + 14}",
        role="img",
        aria_labelledby="lanes-title lanes-desc",
        class_="chart",
        id="chart-entries",
    )


def _hatch(name: str, lines: str, kind: str) -> Markup:
    return tag(
        "pattern",
        tag("path", d=lines, class_=kind),
        id=name,
        width=6,
        height=6,
        patternUnits="userSpaceOnUse",
    )


_PATTERNS = tag(
    "defs",
    _hatch("hatch-stale", "M-1 1l2 -2M0 6l6 -6M5 7l2 -2", "hs"),
    _hatch("hatch-gap", "M0 0l6 6M6 0l-6 6", "hg"),
)


class _Lane:
    """The drawing of one lane."""

    def __init__(
        self,
        timeline: Timeline,
        lane: Lane,
        axis: TimeAxis,
        top: int,
        top_value: int,
        busiest: int,
    ) -> None:
        self._timeline = timeline
        self._lane = lane
        self._axis = axis
        self._top = top
        self._bottom = top + _HEIGHT
        self._values = ValueAxis(top_value, self._bottom, top)
        self._busiest = busiest
        self._row = timeline.activity.row((lane.pod, lane.rank))

    def draw(self) -> Markup:
        lane = self._lane
        own = [wipe for wipe in self._timeline.wipes if self._is_own(wipe)]
        losses = [loss for loss in self._timeline.losses if self._is_own(loss)]
        notes = [note for note in self._timeline.notes if self._concerns(note)]
        return tag(
            "g",
            tag("rect", x=_LEFT, y=self._top, width=_RIGHT - _LEFT, height=_HEIGHT, class_="l"),
            self._windows(own),
            self._level(),
            self._gaps(losses),
            self._doubts(),
            self._strip(),
            self._wipes(own),
            self._stored_again(),
            self._notes(notes),
            tag(
                "text",
                _shortened(lane),
                tag("title", engine(lane.pod, lane.rank)),
                x=_LEFT - 10,
                y=self._top + 20,
                class_="n",
            ),
            tag("text", f"peak {short(lane.peak)}", x=_LEFT - 10, y=self._top + 36, class_="t e"),
            tag(
                "text",
                short(lane.entries),
                tag("title", f"{entries(lane.entries)} at the end"),
                x=_RIGHT + 8,
                y=min(self._bottom, max(self._top + 12.0, self._values.y(lane.entries) + 5)),
                class_="v",
            ),
        )

    def _level(self) -> Markup:
        """The count as a line of steps over an area; in a slice it goes to both extremes."""
        activity = self._timeline.activity
        level = self._lane.before
        path = [f"M{_LEFT} {number(self._values.y(level))}"]
        for place, slice_ in enumerate(self._row):
            if slice_ is None or (slice_.low == slice_.high == slice_.entries == level):
                continue
            path.append(f"H{number(self._axis.x(activity.begin + (place + 0.5) * activity.width))}")
            heights = [level, slice_.low, slice_.high, slice_.entries]
            if level < slice_.high and slice_.entries == slice_.low:
                heights = [level, slice_.high, slice_.low]
            for before, after in pairwise(heights):
                if before != after:
                    path.append(f"V{number(self._values.y(after))}")
            level = slice_.entries
        path.append(f"H{_RIGHT}")
        line = "".join(path)
        return join(
            tag("path", d=f"{line}V{self._bottom}H{_LEFT}z", class_="a"),
            tag("path", d=line, class_="s"),
        )

    def _strip(self) -> Markup:
        """How many events in each slice, as shades of a strip below."""
        activity = self._timeline.activity
        paths: list[list[str]] = [[] for _ in range(_SHADES)]
        for place, slice_ in enumerate(self._row):
            if slice_ is None or not slice_.events:
                continue
            left = self._axis.x(activity.begin + place * activity.width)
            right = self._axis.x(activity.begin + (place + 1) * activity.width)
            across = max(1.0, right - left)
            paths[_shade(slice_, self._busiest)].append(
                f"M{number(left)} {self._bottom + 2 + _STRIP / 2:g}h{number(across)}"
            )
        return join(
            *(
                tag("path", d="".join(path), class_=f"r r{shade}", stroke_width=_STRIP)
                for shade, path in enumerate(paths)
                if path
            )
        )

    def _windows(self, wipes: Iterable[Wipe]) -> Markup:
        return join(
            *(
                self._span(
                    wipe.after,
                    wipe.at,
                    "w",
                    f"{hour(wipe.after)} to {hour(wipe.at)}: {entries(wipe.entries)} stale for "
                    f"{seconds(wipe.window or 0.0)} at most",
                )
                for wipe in wipes
                if wipe.entries and wipe.after is not None and wipe.at is not None
            )
        )

    def _gaps(self, losses: Iterable[Loss]) -> Markup:
        return join(
            *(
                self._span(
                    loss.after,
                    self._axis.end if loss.before is None else loss.before,
                    "p" if loss.recovered else "q",
                    f"{plural(loss.missing, 'batch')} (seq {loss.from_seq} to {loss.to_seq}) "
                    + ("came from the replay" if loss.recovered else "lost"),
                )
                for loss in losses
                if not loss.cold and loss.after is not None
            )
        )

    def _doubts(self) -> Markup:
        return join(
            *(
                self._span(
                    doubt.begin,
                    self._axis.end if doubt.settled is None else doubt.settled,
                    "d",
                    f"in doubt since {plural(doubt.missing, 'batch')} were lost: "
                    f"{entries(doubt.entries)}",
                    height=4,
                )
                for doubt in self._timeline.doubts
                if self._is_own(doubt)
            )
        )

    def _wipes(self, wipes: Iterable[Wipe]) -> Markup:
        marks = []
        for wipe in wipes:
            x = self._axis.x(wipe.moment)
            clear = wipe.kind == "clear"
            top, bottom = self._top, self._bottom
            shape = (
                f"M{number(x - 5)} {top - 7}h10l-5 8z"
                if clear
                else f"M{number(x)} {top - 9}l5 5l-5 5l-5 -5z"
            )
            marks.append(
                tag(
                    "g",
                    tag("title", f"{hour(wipe.at)}: {wipe.kind}, {entries(wipe.entries)} void"),
                    tag("path", d=f"M{number(x)} {top}V{bottom}", class_="k"),
                    tag("path", d=shape, class_="f"),
                    class_="c" if clear else "b",
                )
            )
        return join(*marks)

    def _stored_again(self) -> Markup:
        middle = self._top + _HEIGHT / 2
        return join(
            *(
                tag(
                    "path",
                    tag(
                        "title",
                        f"{hour(again.at)}: {plural(again.blocks, 'block')} stored anew that the "
                        "index still held",
                    ),
                    d=f"M{number(self._axis.x(again.at))} {number(middle - 5)}l5 5l-5 5l-5 -5z",
                    class_="o",
                )
                for again in self._timeline.again
                if self._is_own(again)
            )
        )

    def _notes(self, notes: Iterable[Note]) -> Markup:
        return join(
            *(
                tag(
                    "circle",
                    tag("title", f"{hour(note.recv_ns / 1e9)}: {name(note.text)}"),
                    cx=self._axis.x(note.recv_ns / 1e9),
                    cy=self._bottom - 5,
                    r=3.5,
                    class_="i",
                )
                for note in notes
            )
        )

    def _span(
        self, begin: float | None, end: float | None, kind: str, what: str, height: int = _HEIGHT
    ) -> Markup:
        assert begin is not None
        assert end is not None
        left, right = sorted((self._axis.x(begin), self._axis.x(end)))
        return tag(
            "rect",
            tag("title", what),
            x=left,
            y=self._top,
            width=max(1.5, right - left),
            height=height,
            class_=kind,
        )

    def _is_own(self, happening: object) -> bool:
        own = (self._lane.pod, self._lane.rank)
        return (getattr(happening, "pod", None), getattr(happening, "rank", None)) == own

    def _concerns(self, note: Note) -> bool:
        return note.pod == self._lane.pod and note.rank in (None, self._lane.rank)


def _shade(slice_: Activity, busiest: int) -> int:
    share = (slice_.events / busiest) ** 0.5
    return min(_SHADES - 1, int(share * _SHADES))


def _shortened(lane: Lane) -> str:
    """The label: pods of one deployment differ at the end of their names."""
    shown = engine(lane.pod, lane.rank).replace(" rank ", " r")
    return shown if len(shown) <= _LABEL else f"…{shown[1 - _LABEL :]}"


def _description(timeline: Timeline, lanes: Sequence[Lane]) -> str:
    said = "; ".join(
        f"{engine(lane.pod, lane.rank)}: {lane.before:,} entries at the beginning, at most "
        f"{lane.peak:,} at {hour(lane.peak_at)}, {lane.entries:,} at the end"
        for lane in lanes
    )
    span = f"From {hour(timeline.begin)} to {hour(timeline.end)} UTC"
    return f"{span}, by the engines' clocks. {said}."
