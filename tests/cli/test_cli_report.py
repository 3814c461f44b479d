"""`kvctl report`, and `--plot`, as a user runs them."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import msgpack
import pytest
from recordings import CAPTURES, wire_batches

INCIDENT = [CAPTURES / f"{name}.jsonl" for name in ("warm", "reset-idle", "sleep1")]


def clear_times(name: str) -> list[float]:
    payloads = [msgpack.unpackb(wire.payload) for wire in wire_batches(name)]
    return [
        ts
        for ts, events, _rank in payloads
        if any(event["type"] == "AllBlocksCleared" for event in events)
    ]


def test_the_page_is_made_private_and_never_over_another(kvctl, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    made = kvctl("report", "demo:fleet", "-o", path)
    assert (made.code, made.out) == (0, "")
    assert len(made.err.splitlines()) == 1
    assert str(path) in made.err
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert text.count("<svg") > 2
    again = kvctl("report", "demo:fleet", "-o", path)
    assert again.code == 1
    assert again.err == f"kvctl: {path} exists (--force overwrites it)\n"
    path.write_text("old")
    assert kvctl("report", "demo:fleet", "-o", path, "--force").code == 0
    assert path.read_text().startswith("<!DOCTYPE html>")


def test_the_numbers_are_those_of_the_replay(kvctl, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert kvctl("report", *INCIDENT, "-o", path).code == 0
    told = json.loads(path.read_text())
    replayed = kvctl("replay", *INCIDENT, "-o", "json").json
    for key in ("batches", "events", "blocks_stored", "undecodable", "index"):
        assert told[key] == replayed[key]
    shown = kvctl("report", *INCIDENT, "-o", "json").json
    assert shown["findings"] == told["findings"]
    assert [wipe["at"] for wipe in shown["wipes"]] == [
        *clear_times("reset-idle"),
        *clear_times("sleep1"),
    ]


def test_without_an_output_the_findings_are_a_table(kvctl) -> None:
    result = kvctl("report", *INCIDENT)
    assert result.code == 0
    rows = [line.split() for line in result.out.splitlines()]
    assert ["SEVERITY", "POD", "TIME", "FINDING"] in rows
    assert [row[:2] for row in rows if row[:1] == ["medium"]] == [["medium", "pod-a"]] * 2
    assert "12 entries stale for 11.3 s at most" in result.out


@pytest.mark.parametrize("output", ["-", "html"])
def test_the_page_on_stdout(kvctl, output: str) -> None:
    result = kvctl("report", "demo:fleet", "-o", output)
    assert result.code == 0
    assert result.out.startswith("<!DOCTYPE html>")
    assert result.out.rstrip().endswith("</html>")
    assert result.err == ""


def test_a_capture_from_stdin(kvctl) -> None:
    told = kvctl("report", "-", "-o", "json", stdin=(CAPTURES / "warm.jsonl").read_bytes()).json
    assert told["index"]["entries"] == 12
    assert told["sources"] == ["-"]


def test_since_and_until_are_a_window_of_the_report(kvctl) -> None:
    clear = clear_times("sleep1")[0]
    whole = kvctl("report", *INCIDENT, "-o", "json").json
    late = kvctl("report", *INCIDENT, "--since", repr(clear), "-o", "json").json
    assert late["begin"] == clear
    assert late["index"] == whole["index"]
    assert len(late["wipes"]) == 1
    early = kvctl("report", *INCIDENT, "--until", repr(clear - 0.001), "-o", "json").json
    assert early["end"] < clear
    assert len(early["wipes"]) == 1
    none = kvctl("report", *INCIDENT, "--since", "2099-01-01")
    assert none.code == 0
    assert "Findings: " in none.out


def test_one_pod_of_several(kvctl) -> None:
    told = kvctl("report", "demo:fleet", "--pod", "pod-b", "--pod", "pod-z", "-o", "json").json
    assert list(told["index"]["pods"]) == ["pod-b"]
    assert "absent-pod" in {each["kind"] for each in told["findings"]}


def test_an_index_above_capacity_is_a_finding(kvctl) -> None:
    told = kvctl("report", "demo:fleet", "--num-gpu-blocks", "62", "-o", "json").json
    severe = [each for each in told["findings"] if each["severity"] == "high"]
    assert [each["kind"] for each in severe] == ["over-capacity"] * 2


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["-o", "report.txt"], 2, "'report.txt' is neither FILE.html nor FILE.json"),
        (["-o", "nowhere/report.html"], 1, "no folder nowhere"),
        (["--since", "yesterday"], 2, "--since 'yesterday' is no time"),
        (["--since", "61"], 2, "--since '61' is no time"),
        (["--until", "soon"], 2, "--until 'soon'"),
        (["-o", "json", "--plot"], 2, "would both go to stdout"),
        (["-o", "-", "--plot"], 2, "would both go to stdout"),
    ],
)
def test_bad_words_are_one_line(kvctl, arguments: list[str], code: int, complaint: str) -> None:
    result = kvctl("report", "demo:warm", *arguments)
    assert (result.code, result.out) == (code, "")
    [line] = result.err.splitlines()
    assert complaint in line


def test_what_is_no_capture_leaves_no_file(kvctl, tmp_path: Path) -> None:
    source, path = tmp_path / "text.kvcap", tmp_path / "report.html"
    source.write_text("hello\n")
    result = kvctl("report", source, "-o", path)
    assert result.code == 1
    assert "not a capture" in result.err
    assert not path.exists()


def test_a_capture_cut_in_half_is_reported_as_such(kvctl, tmp_path: Path) -> None:
    whole, half = tmp_path / "whole.kvcap", tmp_path / "half.kvcap"
    assert kvctl("capture", "convert", "demo:fleet", whole).code == 0
    half.write_bytes(whole.read_bytes()[:-5000])
    told = kvctl("report", half, "-o", "json").json
    assert "damage" in {each["kind"] for each in told["findings"]}


def test_a_redacted_capture_tells_the_same_story(kvctl, tmp_path: Path) -> None:
    public = tmp_path / "public.kvcap"
    assert kvctl("capture", "redact", "demo:fleet", public).code == 0
    told, open_ = (kvctl("report", each, "-o", "json").json for each in (public, "demo:fleet"))

    def story(report: dict) -> list[tuple]:
        return sorted(
            (wipe["at"], wipe["entries"], wipe.get("window_s")) for wipe in report["wipes"]
        )

    assert story(told) == story(open_)
    assert "pod-a" not in json.dumps(told["findings"])
    shape = [(run["begin"], run["end"], run["continuations"]) for run in open_["prefixes"]["runs"]]
    assert sorted(shape) == sorted(
        (run["begin"], run["end"], run["continuations"]) for run in told["prefixes"]["runs"]
    )


# -- charts in the terminal ---------------------------------------------------------------------


@pytest.mark.parametrize("command", ["replay", "report"])
@pytest.mark.parametrize("columns", [80, 160])
def test_charts_fit_the_terminal(terminal, command: str, columns: int) -> None:
    screen = terminal(command, "demo:fleet", "--plot", columns=columns, rows=60, LC_ALL="C.UTF-8")
    assert screen.end() == 0
    frames = [line for line in screen.lines if "┌" in line]
    assert len(frames) == 2
    assert all(len(line) == columns for line in frames)
    assert "● pod-a   ● pod-b" in screen.text
    assert re.search("[⠁-⣿]", screen.text)
    assert "07:04:16" in screen.text
    # Two pods, two colours.
    colours = set(re.findall(rb"\x1b\[38;5;(\d+)m", screen.raw))
    assert len(colours) >= 2


def test_without_colours_a_letter_is_a_pod(terminal, kvctl) -> None:
    screen = terminal("replay", "demo:fleet", "--plot", rows=60, LC_ALL="C.UTF-8", NO_COLOR="1")
    assert screen.end() == 0
    assert b"\x1b[3" not in screen.raw
    assert "A pod-a   B pod-b" in screen.text
    chart = [line for line in screen.lines if "│" in line]
    assert sum("A" in line for line in chart) > 5
    assert sum("B" in line for line in chart) > 5
    piped = kvctl("replay", "demo:fleet", "--plot")
    assert piped.code == 0
    assert "\x1b" not in piped.out
    assert "A pod-a   B pod-b" in piped.out


def test_a_terminal_of_ascii_gets_ascii(terminal) -> None:
    screen = terminal(
        "report", "demo:fleet", "--plot", rows=60,
        LC_ALL="C", PYTHONIOENCODING="ascii", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0",
    )  # fmt: skip
    assert screen.end() == 0
    assert screen.raw.isascii()
    assert b"\\u" not in screen.raw
    assert "* pod-a" in screen.text
    assert screen.text.count("+----") >= 4


def test_the_page_and_the_charts_together(kvctl, tmp_path: Path) -> None:
    result = kvctl("report", "demo:fleet", "--plot", "-o", tmp_path / "report.html")
    assert result.code == 0
    assert "events per second" in result.out
    assert (tmp_path / "report.html").exists()


def test_the_chart_shows_what_was_counted(kvctl) -> None:
    """One store of ten blocks, then two of one: the scale says so."""
    lines = kvctl("replay", "demo:warm", "--plot").out.splitlines()
    chart = lines[lines.index("entries per pod") :]
    labels = [int(found[1]) for line in chart[:16] if (found := re.match(r" *(\d+)┤", line))]
    assert labels == [10, 5, 0]


@pytest.mark.parametrize("extra", [["-o", "json"], ["--step"]])
def test_replay_draws_beside_the_table_only(kvctl, extra: list[str]) -> None:
    result = kvctl("replay", "demo:fleet", "--plot", *extra)
    assert (result.code, result.out) == (2, "")
    assert "--plot draws beside the table" in result.err


@pytest.mark.parametrize(
    ("module", "complaint"),
    [("raise ImportError", "needs the library plotext"), ("", "needs plotext 6 or newer")],
)
def test_without_the_library_one_line_names_it(
    kvctl, tmp_path: Path, module: str, complaint: str
) -> None:
    (tmp_path / "plotext.py").write_text(module)
    for command in ("replay", "report"):
        result = kvctl(command, "demo:fleet", "--plot", PYTHONPATH=str(tmp_path))
        assert (result.code, result.out) == (1, "")
        [line] = result.err.splitlines()
        assert complaint in line
        assert "pip install 'kvctl[plot]'" in line
    assert kvctl("report", "demo:fleet", PYTHONPATH=str(tmp_path)).code == 0


def test_an_empty_capture_draws_nothing(kvctl) -> None:
    result = kvctl("replay", "demo:fleet", "--plot", "--until", "0")
    assert result.code == 0
    assert "nothing to draw" in result.out
