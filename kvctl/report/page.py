"""The report as one HTML page that needs nothing besides itself, no script and no network."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources

from kvctl.report.analysis import Report
from kvctl.report.finding import Finding
from kvctl.report.happenings import Lane, Loss, Wipe
from kvctl.report.lanes import MOST_LANES, lanes_chart
from kvctl.report.legend import lanes_legend, rate_legend
from kvctl.report.limits import limits
from kvctl.report.markup import Markup, join, tag
from kvctl.report.prefixtable import prefix_section
from kvctl.report.ratechart import MOST_COLUMNS, columns, rate_chart
from kvctl.report.tables import scrolled, table
from kvctl.report.words import clock, engine, hour, name, seconds, span
from kvctl.report.worst import Worst
from kvctl.text import plural

# No script, no picture, no request: the browser itself sees to it.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_MOST_ROWS = 200
_MOST_PODS = 500
_SLICES = 24
_SLICED_LANES = 8


def page(report: Report) -> str:
    """The whole document."""
    css = (resources.files("kvctl.report") / "page.css").read_text()
    title = f"KV events: {', '.join(name(source) for source in report.sources)}"
    document = tag(
        "html",
        tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="referrer", content="no-referrer"),
            tag("title", title),
            tag("style", Markup(css)),
        ),
        tag("body", tag("main", *_sections(report))),
        lang="en",
    )
    return f"<!DOCTYPE html>\n{document}\n"


def _sections(report: Report) -> Iterator[Markup]:
    yield _head(report)
    yield tag("h2", "Findings")
    yield _findings(report.findings)
    lanes = shown_lanes(report)
    if report.timeline.begin is None:
        yield tag("p", "No batch of KV events is in what was looked at: there is nothing to draw.")
    else:
        yield from _charts(report, lanes)
    yield from _happenings(report)
    yield from prefix_section(
        report.prefixes, {lane.pod for lane in report.timeline.lanes.values()}
    )
    yield from _pods(report)
    yield from _notes(report)
    yield tag("h2", "What this page cannot show")
    yield tag("ul", (tag("li", each) for each in limits(report)), class_="limits")
    yield tag(
        "footer",
        f"Made by kvctl {report.version} at {clock(report.made)} with kvctl report. It holds names "
        "of pods and hashes of blocks, no tokens.",
    )


def shown_lanes(report: Report) -> list[Lane]:
    """The engines with a lane of their own: by name, and of too many those with most to see."""
    lanes = list(report.timeline.lanes.values())
    if len(lanes) > MOST_LANES:
        told = {(each.pod, each.rank) for each in report.findings if each.severity != "info"}
        lanes.sort(key=lambda lane: ((lane.pod, lane.rank) not in told, -lane.peak))
        lanes = lanes[:MOST_LANES]
    return sorted(lanes, key=lambda lane: (lane.pod, lane.rank))


def _head(report: Report) -> Markup:
    timeline, tally = report.timeline, report.timeline.tally
    when = ""
    if timeline.begin is not None and timeline.end is not None:
        when = span(timeline.begin, timeline.end)
    pods = len({lane.pod for lane in timeline.lanes.values()})
    tiles = (
        ("pods", f"{pods:,}"),
        ("batches", f"{tally.batches:,}"),
        ("blocks stored", f"{tally.blocks_stored:,}"),
        ("entries at end", f"{report.summary.entries:,}"),
        ("distinct blocks", f"{report.summary.blocks:,}"),
        ("clears", f"{tally.clears:,}"),
        ("restarts", f"{len(tally.restarts):,}"),
        ("batches lost", f"{sum(lane.lost for lane in timeline.lanes.values()):,}"),
    )
    return tag(
        "header",
        tag("h1", "What the KV events of this capture show"),
        tag("p", ", ".join(name(source) for source in report.sources), class_="source"),
        tag("p", when, class_="source") if when else None,
        tag("p", report.headline, class_="headline"),
        tag(
            "dl",
            (tag("div", tag("dt", label), tag("dd", value)) for label, value in tiles),
            class_="tiles",
        ),
    )


def _findings(findings: tuple[Finding, ...]) -> Markup:
    if not findings:
        return tag("p", "None.")
    return table(
        "The most severe first. Times are UTC, by the engines' clocks.",
        ("Severity", "Pod", "Time", "What, what it means, and what to do"),
        (
            (
                tag("span", each.severity, class_=f"sev {each.severity}"),
                "all" if each.pod is None else engine(each.pod, each.rank),
                _time_of(each),
                join(
                    tag("strong", f"{each.what}."),
                    tag("p", each.means),
                    None if each.todo == "Nothing." else tag("p", each.todo, class_="todo"),
                ),
            )
            for each in findings
        ),
        nowrap=("Time",),
        class_="findings",
    )


def _time_of(finding: Finding) -> Markup:
    if finding.begin is None:
        return tag("span", "")
    if finding.end is None:
        return join(f"from {hour(finding.begin)}")
    if finding.end == finding.begin:
        return join(hour(finding.begin))
    return join(f"{hour(finding.begin)} to ", tag("br"), hour(finding.end))


def _charts(report: Report, lanes: list[Lane]) -> Iterator[Markup]:
    timeline = report.timeline
    yield tag("h2", "Entries per pod over time")
    left_out = len(timeline.lanes) - len(lanes)
    yield tag(
        "p",
        "What an index that goes by the events believes each pod to hold, all on one scale. The "
        "strip below each lane is darker where more events came. "
        f"Sampled every {seconds(timeline.activity.width)}; marks are exact."
        + (f" {left_out:,} more pods are in the table of pods only." if left_out else ""),
        class_="under",
    )
    yield scrolled("Chart: entries per pod over time", lanes_chart(timeline, lanes))
    yield lanes_legend(timeline)
    yield tag("h2", "Event rate over time")
    found, width = columns(timeline, MOST_COLUMNS)
    yield tag(
        "p",
        f"Events per second of all pods together, in columns of {seconds(width)}.",
        class_="under",
    )
    yield scrolled("Chart: events per second over time", rate_chart(timeline, found, width))
    yield rate_legend()
    yield _numbers(report, lanes)


def _numbers(report: Report, lanes: list[Lane]) -> Markup:
    """Both charts as a table."""
    timeline = report.timeline
    found, width = columns(timeline, _SLICES)
    each = max(1, round(width / timeline.activity.width))
    few = lanes[:_SLICED_LANES]
    levels = []
    for lane in few:
        level, row = lane.before, []
        for place, slice_ in enumerate(timeline.activity.row((lane.pod, lane.rank))):
            level = level if slice_ is None else slice_.entries
            if place % each == each - 1 or place == timeline.activity.count - 1:
                row.append(level)
        levels.append(row)
    names = [engine(lane.pod, lane.rank) for lane in few]
    rates = ("stored/s", "removed/s", "cleared/s")
    more = f", of the first {len(few)} pods" if len(lanes) > len(few) else ""
    return tag(
        "details",
        tag("summary", "The two charts as numbers"),
        scrolled(
            "Table: the charts as numbers",
            table(
                f"Events per second and, behind them, entries at the end of each "
                f"{seconds(width)}{more}.",
                ("From", *rates, *names),
                (
                    (
                        hour(column.begin),
                        *(
                            f"{count / width:,.1f}"
                            for count in (column.stores, column.removes, column.clears)
                        ),
                        *(f"{row[place]:,}" for row in levels),
                    )
                    for place, column in enumerate(found)
                ),
                right=(*rates, *names),
            ),
        ),
    )


def _happenings(report: Report) -> Iterator[Markup]:
    timeline = report.timeline
    rows: list[tuple[float, tuple[str, str, str, str, str]]] = []
    for wipe in timeline.wipes:
        rows.append(
            (
                wipe.moment,
                (
                    engine(wipe.pod, wipe.rank),
                    wipe.kind + (f": {name(wipe.reason)}" if wipe.reason else ""),
                    "" if wipe.seq is None else str(wipe.seq),
                    f"{wipe.entries:,}",
                    "not known" if wipe.window is None else seconds(wipe.window),
                ),
            )
        )
    for loss in timeline.losses:
        state = "from the replay" if loss.recovered else "lost"
        rows.append(
            (
                loss.received if loss.before is None else loss.before,
                (
                    engine(loss.pod, loss.rank),
                    f"gap, {state}: {name(loss.reason)}",
                    f"{loss.from_seq} to {loss.to_seq}",
                    "",
                    "",
                ),
            )
        )
    if not rows:
        return
    rows.sort(key=lambda row: row[0])
    left_out = len(rows[_MOST_ROWS:]) + _left_out(timeline.wipes, timeline.losses)
    yield tag("h2", "Clears, restarts and gaps")
    yield scrolled(
        "Table: clears, restarts and gaps",
        table(
            "Entries are those that were void from then on; they were stale for the time given at "
            "most. A gap has the time of the first batch behind it."
            + (f" {left_out:,} more are not shown." if left_out else ""),
            ("Time", "Pod", "What", "Seq", "Entries", "Stale, at most"),
            ((hour(at), *cells) for at, cells in rows[:_MOST_ROWS]),
            right=("Entries", "Stale, at most"),
            nowrap=("Time", "Seq"),
            wide=("Pod", "What"),
        ),
    )


def _left_out(*kept: Worst[Wipe] | Worst[Loss]) -> int:
    return sum(each.left_out for each in kept)


def _pods(report: Report) -> Iterator[Markup]:
    timeline = report.timeline
    streams = {(stream.pod, stream.rank): stream for stream in report.summary.streams}
    lanes = sorted(timeline.lanes.values(), key=lambda lane: (lane.pod, lane.rank))
    if not lanes:
        return
    numbers = (
        "Entries", "Peak", "Unanchored", "Batches", "Events", "Stored", "Clears", "Restarts",
        "Lost",
    )  # fmt: skip
    left_out = len(lanes) - _MOST_PODS
    yield tag("h2", "Pods")
    yield scrolled(
        "Table: pods",
        table(
            "Entries at the end and at their peak; batches that were lost, without those before "
            "the capture; how long before the capture's end the last batch came."
            + (f" {left_out:,} more are not shown." if left_out > 0 else ""),
            ("Pod", "Model", *numbers, "Last heard"),
            (
                (
                    engine(lane.pod, lane.rank),
                    name(stream.model) if stream and stream.model else "",
                    f"{lane.entries:,}",
                    f"{lane.peak:,}",
                    f"{stream.unanchored:,}" if stream else "0",
                    f"{lane.batches:,}",
                    f"{lane.events:,}",
                    f"{lane.blocks_stored:,}",
                    f"{lane.clears:,}",
                    f"{lane.restarts:,}",
                    f"{lane.lost:,}",
                    _last_heard(report, lane),
                )
                for lane in lanes[:_MOST_PODS]
                for stream in [streams.get((lane.pod, lane.rank))]
            ),
            right=numbers,
            nowrap=("Last heard",),
            wide=("Model",),
        ),
    )


def _last_heard(report: Report, lane: Lane) -> str:
    last = report.timeline.last_received
    if lane.last_received is None or last is None:
        return "never"
    return f"{seconds(max(0.0, last - lane.last_received))} before"


def _notes(report: Report) -> Iterator[Markup]:
    notes = report.timeline.notes
    if not notes.total:
        return
    yield tag("h2", "Notes in the capture")
    yield scrolled(
        "Table: notes",
        table(
            f"{plural(notes.total, 'note')}, by the recorder's clock."
            + (f" {notes.left_out:,} are not shown." if notes.left_out else ""),
            ("Time", "Pod", "Note"),
            (
                (hour(note.recv_ns / 1e9), engine(note.pod, note.rank), name(note.text))
                for note in notes
            ),
            nowrap=("Time",),
            wide=("Pod", "Note"),
        ),
    )
