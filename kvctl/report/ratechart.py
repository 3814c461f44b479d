"""The chart of event rates: events per second of all engines, by type."""

from __future__ import annotations

from dataclasses import dataclass

from kvctl.report.axis import TimeAxis, ValueAxis, round_up, short
from kvctl.report.lanes import WIDTH
from kvctl.report.markup import Markup, join, number, tag
from kvctl.report.series import EventCounts
from kvctl.report.timeline import Timeline
from kvctl.report.words import hour, seconds

MOST_COLUMNS = 120

_LEFT, _RIGHT, _TOP, _BOTTOM = 130, 944, 14, 154
_TYPES = (("stores", "x1"), ("removes", "x2"), ("clears", "x3"), ("unknown", "x4"))


@dataclass(slots=True, kw_only=True)
class Column(EventCounts):
    """Those of all engines, from ``begin`` on."""

    begin: float


def columns(timeline: Timeline, most: int) -> tuple[list[Column], float]:
    """The whole span in at most so many columns, and a column's width in seconds."""
    activity = timeline.activity
    each = max(1, -(-activity.count // most))
    width = each * activity.width
    found = [
        Column(begin=activity.begin + place * width) for place in range(-(-activity.count // each))
    ]
    for key in activity:
        for place, there in enumerate(activity.row(key)):
            if there is not None:
                found[place // each].add(there)
    return found, width


def rate_chart(timeline: Timeline, found: list[Column], width: float) -> Markup:
    """The drawing, of a timeline that has something, in its `columns`."""
    assert timeline.begin is not None
    assert timeline.end is not None
    axis = TimeAxis.over(timeline.begin, timeline.end, _LEFT, _RIGHT)
    highest = max((column.events for column in found), default=0)
    step = round_up(highest / width / 4)
    values = ValueAxis(step * max(1, -(-(highest / width) // step)), _BOTTOM, _TOP)
    grid = join(
        *(
            join(
                tag(
                    "line", x1=_LEFT, x2=_RIGHT, y1=values.y(value), y2=values.y(value), class_="g"
                ),
                tag("text", short(value), x=_LEFT - 10, y=values.y(value) + 4, class_="t e"),
            )
            for value in values.ticks(4)
        ),
        tag("line", x1=_LEFT, x2=_RIGHT, y1=_BOTTOM, y2=_BOTTOM, class_="g0"),
        *(
            tag("text", label, x=axis.x(at), y=_BOTTOM + 16, class_="t m")
            for at, label in axis.ticks(8)
        ),
    )
    busiest = max(found, key=lambda column: column.events)
    return tag(
        "svg",
        tag("title", "Events per second over time", id="rate-title"),
        tag(
            "desc",
            f"All pods together, in columns of {seconds(width)}. The busiest, at "
            f"{hour(busiest.begin)} UTC, has {busiest.events / width:,.1f} events a second.",
            id="rate-desc",
        ),
        grid,
        _bars(found, width, axis, values),
        viewBox=f"0 0 {WIDTH} {_BOTTOM + 24}",
        role="img",
        aria_labelledby="rate-title rate-desc",
        class_="chart",
        id="chart-rate",
    )


def _bars(found: list[Column], width: float, axis: TimeAxis, values: ValueAxis) -> Markup:
    paths: dict[str, list[str]] = {name: [] for name, _class in _TYPES}
    for column in found:
        left, right = axis.x(column.begin), axis.x(column.begin + width)
        across = max(1.0, right - left - 0.8)
        below = 0
        for name, _class in _TYPES:
            count: int = getattr(column, name)
            if count:
                bottom, top = values.y(below / width), values.y((below + count) / width)
                paths[name].append(
                    f"M{number(left)} {number(bottom)}V{number(top)}h{number(across)}"
                    f"V{number(bottom)}z"
                )
                below += count
    return join(
        *(tag("path", d="".join(paths[name]), class_=kind) for name, kind in _TYPES if paths[name])
    )
