"""The page in a real browser: it is all there, it asks for nothing, nobody's name runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import NAMES, Browser, chromium
from incidents import at, batch, cleared, report, stored
from recordings import CAPTURES

from kvctl.capture import open_capture
from kvctl.events import Gap, Note, Restart
from kvctl.report.analysis import Report, analyse
from kvctl.report.page import page
from kvctl.stream import order_capture

pytestmark = pytest.mark.skipif(
    chromium() is None, reason=f"no browser is installed: none of {', '.join(NAMES)} is there"
)

HOSTILE = (
    "</title></style><script>document.title='run'</script><img src=x onerror=alert(1)>'\"&\x1b"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


def write(folder: Path, made: Report) -> Path:
    path = folder / "report.html"
    path.write_text(page(made))
    return path


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Path]:
    with open_capture(CAPTURES / "fleet.jsonl") as reader:
        made = analyse(order_capture(reader), ["fleet"])
    return made, write(tmp_path_factory.mktemp("fleet"), made)


def incident(pod: str = "pod-a") -> Report:
    """One of everything that a lane can show."""
    ns = round(at(30) * 1e9)
    return report(
        [
            batch(0, 0, stored(1, 2, 3, 4, 5), pod=pod),
            batch(1, 20, cleared(), stored(1, 2, 3, 4, 5), pod=pod),
            Gap(ns, pod, 0, 2, 4, False, "lost on the way"),
            batch(5, 31, stored(1, 2, 3, 4), pod=pod),
            Restart(round(at(60) * 1e9), pod, 0, 5, "seq went back from 5 to 0"),
            batch(0, 60, stored(1, 2, 3, 4, 5), pod=pod),
            batch(1, 61, stored(1, 2, 3, 4, 5), pod=pod),
            Note(round(at(70) * 1e9), pod, None, "tcp://10.0.0.7:5557: connection lost"),
            batch(0, 80, stored(1, 2, 3), pod=f"{pod}-b"),
        ]
    )


def test_both_charts_are_drawn(browser: Browser, fleet: tuple[Report, Path]) -> None:
    made, path = fleet
    browser.media()
    browser.open(path)
    for chart in ("chart-entries", "chart-rate"):
        box = browser.value(
            f"(b => [b.left, b.right, b.width, b.height])"
            f"(document.getElementById('{chart}').getBoundingClientRect())"
        )
        left, right, width, height = box
        assert 0 <= left < right <= 1200
        assert width > 900
        assert height > 100
    # A line of its own for each pod, over its whole time; as many marks as clears.
    lines = browser.value(
        "[...document.querySelectorAll('#chart-entries path.s')].map(p => p.getBBox().width)"
    )
    assert len(lines) == len(made.timeline.lanes)
    assert all(width > 700 for width in lines)
    flags = browser.value("document.querySelectorAll('#chart-entries g.c').length")
    assert flags == made.timeline.tally.clears == 2
    windows = browser.value(
        "[...document.querySelectorAll('#chart-entries rect.w')].map(r => r.getBBox().width)"
    )
    spans = sorted(wipe.window or 0.0 for wipe in made.timeline.wipes)
    assert made.timeline.begin is not None
    assert made.timeline.end is not None
    whole = made.timeline.end - made.timeline.begin
    scale = max(lines) / whole
    assert sorted(windows) == pytest.approx([span * scale for span in spans], abs=2)
    bars = browser.value(
        "['x1', 'x2', 'x3'].map(c => document.querySelectorAll(`#chart-rate path.${c}`).length)"
    )
    assert bars == [1, 1, 1]


def test_it_asks_for_nothing_and_runs_nothing(browser: Browser, fleet: tuple[Report, Path]) -> None:
    _made, path = fleet
    browser.open(path)
    assert browser.requests() == [path.as_uri()]
    assert browser.complaints() == []
    assert browser.value("document.querySelectorAll('script, img, link, iframe').length") == 0


def test_it_is_for_those_who_cannot_see_it_too(
    browser: Browser, fleet: tuple[Report, Path]
) -> None:
    made, path = fleet
    browser.open(path)
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    told = {
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node.get("ignored")
    }
    images = {name for role, name in told if role in ("image", "img")}
    said = " ".join(sorted(images))
    assert "Entries per pod over time" in said
    assert "pod-a: 0 entries at the beginning" in said
    assert "Events per second over time" in said
    headings = [name for role, name in told if role == "heading"]
    assert {"Findings", "Pods", "What this page cannot show"} <= set(headings)
    headers = {name for role, name in told if role == "columnheader"}
    assert {"Severity", "Time", "Entries"} <= headers
    assert browser.value("document.documentElement.lang") == "en"
    # The numbers behind the charts, as a table that opens.
    rows = browser.value("document.querySelectorAll('details tbody tr').length")
    assert 10 <= rows <= 24
    last = browser.value(
        "[...document.querySelector('details tbody tr:last-child').cells].map(c => c.textContent)"
    )
    assert [int(cell) for cell in last[-2:]] == [
        lane.entries for _key, lane in sorted(made.timeline.lanes.items())
    ]


def test_light_dark_and_paper(browser: Browser, fleet: tuple[Report, Path]) -> None:
    _made, path = fleet
    browser.open(path)
    colours = "['backgroundColor', 'color'].map(k => getComputedStyle(document.body)[k])"
    browser.media(scheme="light")
    light = browser.value(colours)
    browser.media(scheme="dark")
    dark = browser.value(colours)
    browser.media("print", "dark")
    paper = browser.value(colours)
    browser.media()
    assert light[0] == paper[0] == "rgb(255, 255, 255)"
    assert dark[0] == "rgb(18, 22, 28)"
    assert light[1] != dark[1]
    assert paper[1] == "rgb(0, 0, 0)"
    pdf = browser.call("Page.printToPDF", printBackground=False)["data"]
    assert len(pdf) > 10_000


@pytest.mark.parametrize("width", [375, 800, 1600])
def test_no_screen_is_too_narrow(browser: Browser, tmp_path: Path, width: int) -> None:
    browser.open(write(tmp_path, incident("namespace/a-pod-of-a-long-name-5d8f")), width=width)
    assert browser.value("document.scrollingElement.scrollWidth") <= width


def test_one_of_everything_is_drawn(browser: Browser, tmp_path: Path) -> None:
    browser.open(write(tmp_path, incident()))
    counts = browser.value(
        "Object.fromEntries(['g.c', 'g.b', 'rect.w', 'rect.q', 'rect.d', '.o', 'circle.i'].map("
        "s => [s, document.querySelectorAll('#chart-entries ' + s).length]))"
    )
    assert counts == {
        "g.c": 1, "g.b": 1, "rect.w": 2, "rect.q": 1, "rect.d": 1, ".o": 1, "circle.i": 1,
    }  # fmt: skip
    legend = browser.value("document.querySelector('ul.legend').textContent")
    for word in ("clear", "restart", "batches lost", "in doubt", "stored anew", "note"):
        assert word in legend


def test_a_hostile_name_is_only_a_name(browser: Browser, tmp_path: Path) -> None:
    made = incident(HOSTILE)
    path = write(tmp_path, made)
    browser.open(path)
    title = browser.value("document.title")
    assert title == "KV events: incident.kvcap"
    assert browser.value("document.querySelectorAll('script, img').length") == 0
    assert browser.requests() == [path.as_uri()]
    shown = browser.value("document.body.textContent")
    assert "<script>document.title='run'</script>" in shown
    assert "\x1b" not in shown


def test_an_empty_capture_has_a_page_too(browser: Browser, tmp_path: Path) -> None:
    browser.open(write(tmp_path, report([])))
    assert browser.value("document.querySelectorAll('svg.chart').length") == 0
    assert "nothing to draw" in browser.value("document.body.textContent")
