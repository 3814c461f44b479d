"""Charts in the terminal: entries per pod and event rate over time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from kvctl.cli.output import PIPED_WIDTH, stdout_console
from kvctl.errors import KvctlError
from kvctl.report.axis import TimeAxis, ValueAxis, short
from kvctl.report.happenings import Lane
from kvctl.report.ratechart import columns
from kvctl.report.timeline import Timeline
from kvctl.report.words import engine, seconds
from kvctl.text import plural

MOST_PODS = 8

_WIDEST = 200
_PIPED_WIDTH = 100
_ENTRY_ROWS, _RATE_ROWS = 15, 10
# The 256-colour codes of the lines, in turn; readable on light and dark.
_COLOURS = (33, 208, 35, 170, 160, 37, 136, 99)
# One letter a pod, where there are no colours to tell them apart.
_LETTERS = "ABCDEFGH"
_AS_ASCII = str.maketrans("─│┌┐└┘├┤┬┴┼", "-|+++++++++")


def check_plots() -> None:
    """Whether there is what draws the charts, before the work is done. Raises `KvctlError`."""
    _plotext()


def print_plots(timeline: Timeline) -> None:
    """Both charts on stdout, as wide as the terminal.

    Without colours each pod has a letter; a terminal that is not Unicode gets ASCII.
    """
    if timeline.begin is None or timeline.end is None:
        print("no batch of KV events: nothing to draw")
        return
    console = stdout_console()
    width = min(console.width, _WIDEST) if console.is_terminal else _piped_width(console.width)
    coloured = console.is_terminal and not console.no_color and bool(console.color_system)
    drawing = _Drawing(width, coloured=coloured, ascii_only=console.options.ascii_only)
    axis = TimeAxis.over(timeline.begin, timeline.end, timeline.begin, timeline.end)
    lanes = sorted(timeline.lanes.values(), key=lambda lane: -lane.peak)[:MOST_PODS]
    lanes.sort(key=lambda lane: (lane.pod, lane.rank))
    drawing.entries(timeline, lanes, axis)
    print()
    drawing.rate(timeline, axis)


def _piped_width(width: int) -> int:
    return _PIPED_WIDTH if width == PIPED_WIDTH else min(width, _WIDEST)


class _Drawing:
    """How charts look on this terminal."""

    def __init__(self, width: int, *, coloured: bool, ascii_only: bool) -> None:
        self._width = max(30, width)
        self._coloured = coloured
        self._ascii = ascii_only
        self._plotext = _plotext()

    def entries(self, timeline: Timeline, lanes: Sequence[Lane], axis: TimeAxis) -> None:
        figure = self._figure(_ENTRY_ROWS, axis)
        for number, lane in enumerate(lanes):
            times, levels = _steps(timeline, lane, axis)
            figure.draw(figure.signal(times, levels, marker=self._marker(number)).lines())
        left_out = len(timeline.lanes) - len(lanes)
        self._write("entries per pod" + (f" (of the {len(lanes)} biggest)" if left_out else ""))
        self._legend(lanes)
        self._show(figure, max((lane.peak for lane in lanes), default=0))
        if left_out:
            self._write(f"{plural(left_out, 'more pod')} not drawn: --pod POD draws one")

    def rate(self, timeline: Timeline, axis: TimeAxis) -> None:
        # A column of the chart is a cell; the frame and the numbers take about ten.
        cells = max(10, self._width - 10)
        found, width = columns(timeline, cells)
        rates = [column.events / width for column in found]
        step = (axis.end - axis.begin) / cells
        centres = [axis.begin + (cell + 0.5) * step for cell in range(cells)]
        bars = []
        for at in centres:
            place = min(len(rates) - 1, max(0, int((at - found[0].begin) / width)))
            # The end of the last column may lie behind the middle of the last cell.
            bars.append((at, rates[place] if at != centres[-1] else max(rates[place:])))
        busy = [(at, rate) for at, rate in bars if rate]
        figure = self._figure(_RATE_ROWS, axis)
        times, heights = [at for at, _rate in busy], [rate for _at, rate in busy]
        figure.draw(figure.signal(times, heights, marker=self._marker(0, bar=True)).fillx())
        self._write(f"events per second, all pods, in columns of {seconds(width)}")
        self._show(figure, max(rates, default=0.0))

    def _figure(self, rows: int, axis: TimeAxis) -> Any:
        plot = self._plotext
        plot.terminal.limit(False, False)
        figure = plot.figure
        figure.clear()
        figure.theme("simple" if self._coloured else "colorless")
        figure.plot_size(self._width, rows)
        ticks = axis.ticks(max(2, self._width // 16))
        x = figure.ruler("x")
        x.lim(axis.begin, axis.end)
        x.ticks([at for at, _label in ticks], [label for _at, label in ticks])
        return figure

    def _marker(self, number: int, *, bar: bool = False) -> Any:
        if bar:
            shape = "#" if self._ascii else "█"
        elif self._coloured:
            shape = "." if self._ascii else "braille"
        else:
            shape = _LETTERS[number]
        if not self._coloured:
            return shape
        return self._plotext.marker(shape, pixel=_COLOURS[number])

    def _legend(self, lanes: Sequence[Lane]) -> None:
        """Which line is which pod's; a name stays in a line if one can hold it."""
        from rich.text import Text

        console = stdout_console()
        line = Text()
        for number, lane in enumerate(lanes):
            sign = ("*" if self._ascii else "●") if self._coloured else _LETTERS[number]
            key = Text(f"{sign} ", style=f"color({_COLOURS[number]})" if self._coloured else "")
            key.append(engine(lane.pod, lane.rank), style="default" if self._coloured else "")
            if line and len(line) + 3 + len(key) > self._width:
                console.print(line)
                line = key
            else:
                line = Text("   ").join([line, key]) if line else key
        console.print(line)

    def _show(self, figure: Any, top: float) -> None:
        top = top or 1.0
        y = figure.ruler("y")
        y.lim(0, top)
        ticks = [0.0, *ValueAxis(top, 0, 1).ticks(4)]
        y.ticks(ticks, [short(value) for value in ticks])
        drawn = figure.build().string(colorless=not self._coloured)
        self._write("\n".join(line.rstrip() for line in drawn.splitlines()))

    def _write(self, text: str) -> None:
        sys.stdout.write((text.translate(_AS_ASCII) if self._ascii else text) + "\n")


def _steps(timeline: Timeline, lane: Lane, axis: TimeAxis) -> tuple[list[float], list[int]]:
    """The corners of a lane's line."""
    activity = timeline.activity
    times, levels = [axis.begin], [lane.before]
    for place, there in enumerate(activity.row((lane.pod, lane.rank))):
        if there is None:
            continue
        at = min(axis.end, max(axis.begin, activity.begin + (place + 0.5) * activity.width))
        for level in (levels[-1], there.low, there.high, there.entries):
            times.append(at)
            levels.append(level)
    times.append(axis.end)
    levels.append(levels[-1])
    return times, levels


def _plotext() -> Any:
    remedy = "pip install 'kvctl[plot]'"
    try:
        import plotext
    except (ImportError, OSError):
        raise KvctlError("--plot needs the library plotext", remedy=remedy) from None
    if not hasattr(plotext, "figure"):
        raise KvctlError("--plot needs plotext 6 or newer", remedy=remedy)
    return plotext
