"""The keys of the charts."""

from __future__ import annotations

from kvctl.report.markup import Markup, tag
from kvctl.report.timeline import Timeline


def lanes_legend(timeline: Timeline) -> Markup:
    """What the marks in the lanes mean, of those that are there."""
    clears = any(wipe.kind == "clear" for wipe in timeline.wipes)
    restarts = any(wipe.kind == "restart" for wipe in timeline.wipes)
    windows = any(wipe.entries and wipe.after is not None for wipe in timeline.wipes)
    losses = [loss for loss in timeline.losses if not loss.cold]
    lost = any(not loss.recovered for loss in losses)
    late = any(loss.recovered for loss in losses)
    return _legend(
        (True, tag("path", d="M0 10H8V4H20", class_="s"), "entries"),
        (windows, _box("w"), "stale at most so long: the wipe was somewhere in it"),
        (clears, _flag("c", "M5 0h10l-5 8z"), "clear"),
        (restarts, _flag("b", "M10 0l5 5l-5 5l-5 -5z"), "restart"),
        (lost, _box("q"), "batches lost"),
        (late, _box("p"), "late, from the replay"),
        (
            bool(timeline.doubts.total),
            tag("rect", x=0, y=5, width=20, height=4, class_="d"),
            "in doubt since a loss",
        ),
        (
            bool(timeline.again.total),
            tag("path", d="M10 2l5 5l-5 5l-5 -5z", class_="o"),
            "stored anew though held",
        ),
        (bool(timeline.notes.total), tag("circle", cx=10, cy=7, r=4, class_="i"), "note"),
    )


def rate_legend() -> Markup:
    """Which colour is which type of event."""
    kinds = (
        ("x1", "BlockStored"),
        ("x2", "BlockRemoved"),
        ("x3", "AllBlocksCleared"),
        ("x4", "unknown"),
    )
    return _legend(
        *(
            (True, tag("rect", x=3, y=1, width=12, height=12, class_=kind), label)
            for kind, label in kinds
        )
    )


def _box(kind: str) -> Markup:
    return tag("rect", x=1, y=1, width=18, height=12, class_=kind)


def _flag(kind: str, shape: str) -> Markup:
    pole = tag("path", d="M10 3V14", class_="k")
    return tag("g", pole, tag("path", d=shape, class_="f"), class_=kind)


def _legend(*rows: tuple[bool, Markup, str]) -> Markup:
    return tag(
        "ul",
        (
            tag("li", tag("svg", shape, viewBox="0 0 20 14", aria_hidden="true"), meaning)
            for there, shape, meaning in rows
            if there
        ),
        class_="legend",
    )
