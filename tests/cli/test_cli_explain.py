"""`kvctl explain`, and that what commands really print is what it says."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import requests

from kvctl.cli.shape import Field, Shape
from kvctl.cli.shapes import EXIT_CODES, SHAPES
from kvctl.sim import SimConfig, SimPod

sys.path.insert(0, str(Path(__file__).parents[1] / "operate"))

from driving import complete, spec
from readme_quotes import README, quoted, requoted

DATA = Path(__file__).parents[1] / "data" / "captures"
TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "object": (dict,),
}


@pytest.fixture
def pods() -> Iterator[list[SimPod]]:
    with SimPod(SimConfig(name="pod-a")) as a, SimPod(SimConfig(name="pod-b")) as b:
        for pod in (a, b):
            complete(pod)
        yield [a, b]


def post(pod: SimPod, path: str) -> None:
    requests.post(pod.api + path, timeout=30).raise_for_status()


def faults(value: Any, fields: Sequence[Field], where: str = "") -> list[str]:
    """What of an object is not as described."""
    found = []
    known = {field.name: field for field in fields}
    found += [f"{where}.{name} is not described" for name in value if name not in known]
    for name, field in known.items():
        at = f"{where}.{name}"
        if name not in value:
            found += [] if field.optional else [f"{at} is absent"]
        else:
            found += faults_of(value[name], field.type, field.fields, at)
    return found


def faults_of(value: Any, type_: str, fields: Sequence[Field], at: str) -> list[str]:
    if type_.endswith(" or null"):
        return [] if value is None else faults_of(value, type_.removesuffix(" or null"), fields, at)
    if type_.startswith("list of "):
        if not isinstance(value, list):
            return [f"{at} is no list"]
        inner = type_.removeprefix("list of ")
        return [fault for each in value for fault in faults_of(each, inner, fields, f"{at}[]")]
    if type_.startswith("map of "):
        if not isinstance(value, dict):
            return [f"{at} is no map"]
        inner = type_.removeprefix("map of ")
        return [f for each in value.values() for f in faults_of(each, inner, fields, f"{at}{{}}")]
    if type_ == "any":
        return []
    right = isinstance(value, TYPES[type_]) and (type_ == "bool" or not isinstance(value, bool))
    if not right:
        return [f"{at} is {value!r}, not {type_}"]
    return faults(value, fields, at) if type_ == "object" and fields else []


def as_described(told: Any, name: str) -> None:
    """Each object must be as the shape of that name says."""
    objects = told if isinstance(told, list) else [told]
    assert objects
    for each in objects:
        assert faults(each, SHAPES[name].fields) == [], each


def kind_of(record: dict[str, Any]) -> str:
    """The name of the shape of a line of `tail`: marks have their own."""
    mark = f"tail {record['type']}"
    return mark if mark in SHAPES else "tail"


def test_a_wrong_object_is_told_from_a_right_one() -> None:
    shape = Shape("", (Field("a", "int"), Field("b", "list of text", optional=True)))
    assert faults({"a": 1, "b": ["x"]}, shape.fields) == []
    assert faults({"a": True}, shape.fields) == [".a is True, not int"]
    assert faults({"b": [1]}, shape.fields) == [".a is absent", ".b[] is 1, not text"]
    assert faults({"a": 1, "c": 2}, shape.fields) == [".c is not described"]


def test_tail_prints_what_is_described(kvctl, pods, tmp_path: Path) -> None:
    named = [word for pod in pods for word in ("--pod", spec(pod))]
    post(pods[0], "/reset_prefix_cache")
    complete(pods[0])
    told = kvctl("tail", *named, "--timeout", "1", "-o", "jsonl").objects
    assert {"BlockStored", "AllBlocksCleared"} <= {each["type"] for each in told}
    stats = kvctl("tail", *named, "--timeout", "1.5", "--stats", "-o", "jsonl").objects
    assert {each["type"] for each in stats} == {"Stats"}
    for each in told + stats:
        as_described(each, kind_of(each))


@pytest.mark.parametrize("name", ["restart", "hybrid", "lora", "salt", "fleet", "evict"])
def test_replay_prints_what_is_described(kvctl, name: str) -> None:
    capture = next(DATA.glob(f"{name}.jsonl*"))
    told = kvctl("replay", capture, "-o", "json", "--match", "[1,2,3,4]", "--router", "aibrix")
    as_described(told.json, "replay")
    assert "router" in told.json["match"]
    steps = kvctl("replay", capture, "--step", "-o", "jsonl").objects
    as_described(steps, "replay --step")
    for each in (record for step in steps for record in step["records"]):
        as_described(each, kind_of(each))


@pytest.mark.parametrize("name", ["restart", "hybrid", "lora", "sleep1", "fleet", "evict"])
def test_report_prints_what_is_described(kvctl, name: str) -> None:
    told = kvctl("report", DATA / f"{name}.jsonl", "-o", "json", "--pod", "pod-b", "--pod", "pod-a")
    as_described(told.json, "report")


def test_a_report_of_losses_prints_what_is_described(kvctl, tmp_path: Path) -> None:
    """The sleep's recording without its clear, then as it is: a gap, stored again, a note."""
    first, second, third = (DATA / "warm.jsonl").read_text().splitlines()[:3]
    again = json.loads(first) | {"recv_ts": json.loads(third)["recv_ts"] + 1}
    again["frames"][1] = base64.b64encode((7).to_bytes(8, "big")).decode()
    path = tmp_path / "lossy.jsonl"
    path.write_text("\n".join([first, second, json.dumps(again)]) + "\n")
    told = kvctl("report", path, "-o", "json").json
    as_described(told, "report")
    assert [doubt["stored_again"] for doubt in told["doubts"]] == [10]


def test_capture_info_prints_what_is_described(kvctl) -> None:
    as_described(kvctl("capture", "info", "demo:fleet", "-o", "json").json, "capture info")


def test_what_looks_at_pods_prints_what_is_described(kvctl, pods) -> None:
    named = [word for pod in pods for word in ("--pod", spec(pod))]
    unreachable = "name=pod-x,api=http://127.0.0.1:1,events=tcp://127.0.0.1:2,replay=none"
    some = [*named, "--pod", unreachable, "--timeout", "1", "-o", "json"]
    as_described(kvctl("pods", *some).json, "pods")
    as_described(kvctl("doctor", *some).json, "doctor")
    as_described(kvctl("top", *some, "-n", "1", "--interval", "0.2").json, "top")


def test_what_drives_engines_prints_what_is_described(kvctl, pods) -> None:
    for command, *more in (["reset", "--nudge", "--yes"], ["sleep", "--yes"], ["wake"]):
        for some in (pods[:1], pods):
            named = [word for pod in some for word in ("--pod", spec(pod))]
            told = kvctl(command, *named, *more, "--timeout", "1", "-o", "json")
            assert isinstance(told.json, list) == (len(some) > 1)
            as_described(told.json, command)
    for command in ("reset", "sleep", "wake"):
        named = ["--pod", spec(pods[0]), "--index", "fleet.sqlite"]
        planned = kvctl(command, *named, "--dry-run", "-o", "json")
        as_described(planned.json, f"{command} --dry-run")


def test_indexes_print_what_is_described(kvctl, tmp_path: Path) -> None:
    some = [tmp_path / "a.sqlite", tmp_path / "b.sqlite"]
    assert kvctl("replay", "demo:fleet", "--save", some[0]).code == 0
    assert kvctl("replay", DATA / "warm.jsonl", "--save", some[1]).code == 0
    index = ["--index", some[0], "-o", "json"]
    as_described(kvctl("index", "show", *index).json, "index show")
    as_described(kvctl("index", "show", "--blocks", *index).json, "index show --blocks")
    as_described(kvctl("index", "match", "[1,2,3]", *index).json, "index match")
    told = kvctl("index", "diff", *some, "--blocks", "-o", "json")
    as_described(told.json, "index diff")
    assert told.json["differences"]


def test_reconcile_prints_what_is_described(kvctl, start, pods, tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    named = [word for pod in pods for word in ("--pod", spec(pod))]
    assert kvctl("tail", *named, "--index", path, "--timeout", "2").code == 0
    post(pods[0], "/sleep?level=1")
    told = kvctl("reconcile", *named, "--index", path, "--yes", "--resync", "-o", "json")
    as_described(told.json, "reconcile")
    watch = start(
        "reconcile", *named, "--index", path, "--watch", "--dry-run", "--interval", "0.3",
        "-o", "jsonl",
    )  # fmt: skip
    watch.wait_until(lambda: watch.out.count("\n") >= 2)
    watch.interrupt()
    as_described([json.loads(line) for line in watch.out.splitlines()], "reconcile")


def test_the_experiment_prints_what_is_described(kvctl) -> None:
    told = kvctl("reproduce-2287", "--trigger", "reset-idle", "-o", "json")
    as_described(told.json, "reproduce-2287")


def test_sim_prints_what_is_described(start) -> None:
    sim = start("sim", "--pods", "2", "-o", "json")
    sim.wait_until(lambda: sim.out.endswith("\n"))
    as_described(json.loads(sim.out), "sim")
    sim.interrupt()


def test_it_explains_a_command_and_all_under_a_name(kvctl) -> None:
    told = kvctl("explain", "index", "match")
    assert told.code == 0
    assert "prompt_blocks" in told.out
    both = kvctl("explain", "index")
    assert both.out.startswith("index show: one object\n")
    assert "index diff" in both.out


def test_it_names_what_it_can_explain(kvctl) -> None:
    told = kvctl("explain", "nonsense")
    assert (told.code, told.out) == (2, "")
    assert "reconcile" in told.err


def test_the_readmes_exit_codes_are_the_codes(kvctl) -> None:
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", README.read_text(), re.M)
    assert {int(code): meaning for code, meaning in rows} == EXIT_CODES
    for code in EXIT_CODES:
        assert re.search(rf"^ +{code}  ", kvctl("explain").out, re.M)


def test_the_readme_quotes_it_word_for_word() -> None:
    readme = README.read_text()
    same_as_reset = {"sleep", "wake"}
    explained = {words.split()[0] for words in quoted(readme)}
    assert explained == {name.split()[0] for name in SHAPES} - same_as_reset
    assert requoted(readme) == readme, "python tests/cli/readme_quotes.py brings it up to date"
