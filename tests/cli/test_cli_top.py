"""`kvctl top` as a user runs it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvctl.sim import SimConfig, SimPod

sys.path.insert(0, str(Path(__file__).parents[1] / "operate"))

from driving import complete, spec


@pytest.fixture
def pod() -> Iterator[SimPod]:
    with SimPod(SimConfig()) as pod:
        complete(pod)
        yield pod


def test_one_look_in_json(kvctl, pod) -> None:
    told = kvctl("top", "--pod", spec(pod), "--interval", "0.3", "-n", "1", "-o", "json")
    assert told.code == 0
    assert set(told.json) == {"at", "pods"}
    (row,) = told.json["pods"]
    assert (row["pod"], row["state"], row["entries"], row["capacity"]) == ("pod-a", "awake", 4, 63)


def test_piped_it_is_a_table_a_look(kvctl, pod) -> None:
    told = kvctl("top", "--pod", spec(pod), "--interval", "0.3", "-n", "2")
    assert told.code == 0
    assert told.out.count("STATE") == 2
    assert "\x1b" not in told.out


def test_an_object_a_look(kvctl, pod) -> None:
    told = kvctl("top", "--pod", spec(pod), "--interval", "0.3", "-n", "3", "-o", "jsonl")
    assert len(told.objects) == 3


def test_json_of_many_looks_is_refused(kvctl, pod) -> None:
    told = kvctl("top", "--pod", spec(pod), "-n", "2", "-o", "json")
    assert (told.code, told.out) == (2, "")


def test_a_terminal_of_80_columns_shows_it_and_is_clean_after_ctrl_c(terminal, pod) -> None:
    shown = terminal("top", "--pod", spec(pod), "--interval", "0.3", columns=80)
    shown.wait_for("awake")
    line = next(line for line in shown.lines if "pod-a" in line)
    assert line.split()[:3] == ["pod-a", "0", "awake"]
    shown.send("\x03")
    assert shown.end() == 130
    assert "Traceback" not in shown.text


def test_rows_are_sorted_by_the_column_asked_for(kvctl, pod) -> None:
    with SimPod(SimConfig(name="pod-b")) as other:
        for number in range(3):
            complete(other, list(range(number * 100, number * 100 + 64)))
        both = ("--pod", spec(pod), "--pod", spec(other))
        told = kvctl("top", *both, "--interval", "0.3", "-o", "json", "--sort", "entries")
        assert [row["pod"] for row in told.json["pods"]] == ["pod-b", "pod-a"]
