"""The page as text: whatever is in a capture, it stays text."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import hypothesis.strategies as st
from hypothesis import given, settings
from incidents import SIZE, at, batch, cleared, report, stored
from recordings import CAPTURES

from kvctl.capture import open_capture
from kvctl.events import BlockStored, Gap, Note, Restart
from kvctl.report.analysis import Report, analyse
from kvctl.report.document import document
from kvctl.report.page import page
from kvctl.stream import order_capture

TAGS = {
    "html", "head", "meta", "title", "style", "body", "main", "header", "footer", "h1", "h2", "p",
    "dl", "dt", "dd", "div", "table", "caption", "thead", "tbody", "tr", "th", "td", "span",
    "strong", "code", "ul", "li", "details", "summary", "br",
    "svg", "desc", "defs", "pattern", "g", "path", "rect", "circle", "line", "text",
}  # fmt: skip
VOID = {"meta", "br"}
NASTY = st.one_of(
    st.text(max_size=30),
    st.text(alphabet="<>&\"'/=!-;:\x00\x1b\u202e\u2028\ud800\n\r\t abc", max_size=30),
    st.sampled_from(
        [
            "</title><script>alert(1)</script>", "</style><img src=x onerror=alert(1)>",
            "\" onload=\"alert(1)", "<!--", "]]>", "&lt;b&gt;", "javascript:alert(1)",
            "\x1b[31mred\x07", "x" * 5000, "\u202egnp.exe",
        ]
    ),
)  # fmt: skip


class Reader(HTMLParser):
    """Checks the elements as they come, and gathers what is text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.text: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        for name, value in attributes:
            assert re.fullmatch(r"[a-zA-Z-]+[0-9]?", name), name
            assert not name.startswith("on")
            assert name not in ("href", "src", "style", "action", "xlink:href"), name
            if name == "id":
                assert value is not None
                self.ids.append(value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids))
    return reader


def recorded(name: str) -> Report:
    with open_capture(CAPTURES / f"{name}.jsonl") as reader:
        return analyse(order_capture(reader), [name])


@settings(max_examples=60)
@given(NASTY, NASTY, NASTY, NASTY, NASTY)
def test_no_string_of_a_capture_becomes_markup(
    pod: str, reason: str, note: str, source: str, lora: str
) -> None:
    lora = lora.encode(errors="replace").decode()  # the decoder lets nothing else through
    first = stored(1, 2, 3)
    under = BlockStored([11, 12], None, list(range(8)), SIZE, lora_name=lora)
    made = analyse(
        [
            batch(0, 0, first, under, pod=pod),
            batch(0, 0, first, under, pod=f"{pod}2"),
            Gap(round(at(1) * 1e9), pod, 0, 1, 2, False, reason),
            batch(3, 20, cleared(), first, under, pod=pod),
            Restart(round(at(30) * 1e9), pod, 0, 3, reason),
            batch(0, 31, first, under, pod=pod),
            Note(round(at(40) * 1e9), pod, None, note),
        ],
        [source],
        pods=[reason],
        warnings=lambda: [note],
    )
    text = page(made)
    reader = read(text)
    assert all(char.isprintable() or char == "\n" for char in text)
    text.encode()
    # Every name is cut to a line's length.
    assert len(text) < 100_000
    assert "findings" in json.loads(json.dumps(document(made), allow_nan=False))
    assert reader.text


def test_no_token_is_in_it() -> None:
    secret = [987_650_001, 987_650_002, 987_650_003, 987_650_004]
    records = [
        batch(0, 0, BlockStored([1], None, secret, SIZE), pod=pod) for pod in ("pod-a", "pod-b")
    ]
    made = report(records)
    assert made.prefixes.shared == 1
    for text in (page(made), json.dumps(document(made))):
        assert "98765" not in text


def test_the_numbers_are_those_of_the_replay() -> None:
    made = recorded("fleet")
    said = " ".join(read(page(made)).text)
    for number in (70, 247, 124, 106):  # batches, stored, entries, distinct: kvctl replay's
        assert re.search(rf"\b{number}\b", said)


def test_the_page_stays_small() -> None:
    """A mark a clear, a sample a slice: both have their limit."""
    records = []
    for number in range(5000):
        records.append(batch(number, 2.0 * number, cleared(), stored(1, 2, number + 10)))
    text = page(report(records))
    read(text)
    assert len(text) < 1_500_000


def test_the_document_tells_the_same() -> None:
    made = recorded("fleet")
    told = document(made)
    assert told["batches"] == 70
    assert told["index"] == made.summary.to_dict()
    assert [each["kind"] for each in told["findings"]] == [each.kind for each in made.findings]
    for pod in told["series"]["pods"]:
        lane = made.timeline.lanes[pod["pod"], pod["rank"]]
        assert pod["samples"][-1]["entries"] == lane.entries == pod["entries"]
        assert max(each["high"] for each in pod["samples"]) == pod["peak"]
    stores = sum(each["stores"] for pod in told["series"]["pods"] for each in pod["samples"])
    assert stores == told["events"]["BlockStored"]
    windows = [each["window_s"] for each in told["wipes"]]
    assert windows == [wipe.window for wipe in made.timeline.wipes]
    runs = told["prefixes"]["runs"]
    assert runs[0]["tokens"] == runs[0]["end"] * 32


def test_times_far_off_are_no_fault() -> None:
    far = batch(0, 0, stored(1)).events
    wire = batch(0, 0).wire
    records = [
        type(batch(0, 0))(wire, type(far)(moment, far.events, 0))
        for moment in (0.0, 1e-9, 1.7e9, 253_402_300_799.0, 1e300, -5.0)
    ]
    read(page(report(records)))
