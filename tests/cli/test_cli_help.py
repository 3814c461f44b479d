"""Help: one layout and the same words everywhere, and examples that run."""

from __future__ import annotations

import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path += [str(Path(__file__).parents[1] / name) for name in ("fleet", "operate")]
sys.path.insert(0, str(Path(__file__).parent))

from commandtree import Told, commands
from world import World, has_loopback_network, private_network

from kvctl.cli import panels
from kvctl.cli.commands import COMMANDS

ALL = list(commands())
EXAMPLES = dict.fromkeys(example for each in ALL for example in each.examples)

# Where one option's words differ from command to command, because what it does does.
DIFFERENT = {
    "--blocks": "what is listed, or in sim how large an engine is",
    "--count": "events that tail shows, rounds of top",
    "--context": "config set-pod makes the one that it names",
    "--index": "an index to look into, to feed, to prove a purge by, or a context's own",
    "--lora": "a prompt's, or a filter: of stores in tail, of entries in index show",
    "--medium": "of events in tail, of entries in index show",
    "--model": "a prompt's, a filter's, an engine's, a context's",
    "--output": "in report the name of a file",
    "--pod": "a pod told of, or in replay, report and index show one picked",
    "--save": "an index of replay, a capture of reproduce-2287",
    "--seed": "in reproduce-2287 the prompts follow it, too",
    "--timeout": "of an answer, of a clear in reset and its like, of the whole run in tail",
}
# What kvctl's code says where it is not 0, or goes on until it is interrupted.
DRIFT = {
    "kvctl index diff fleet.sqlite capture:incident.kvcap",
    "kvctl index diff yesterday.sqlite today.sqlite --blocks -o jsonl",
}
ENDLESS = re.compile(r"kvctl (tail|top(?!.* -n 1)|sim)|--watch|--publish")
# What must be seen, where "something" is too little.
SEEN = {
    "kvctl replay demo:fleet": "pod-b     0  tiny",
    "kvctl index match prompt.json --index fleet.sqlite": "pod-a",
    "kvctl reset 10.0.0.7 --nudge --yes": "verified",
    "kvctl reset pod-a --probe --nudge --yes -o json | jq .verdict": '"verified"',
    "kvctl sleep 10.0.0.7 --purge --yes": "purged",
    "kvctl sleep pod-a --index redis://10.0.0.2:6379/0 --purge --yes": "purged",
    "kvctl sleep pod-a --level 2 --dry-run": "would sleep",
    "kvctl wake 10.0.0.7 --nudge": "awake",
    "kvctl index diff fleet.sqlite redis://10.0.0.2:6379/0 --context prod": "pod-a",
    "kvctl reconcile --index fleet.sqlite --dry-run -o json | jq .summary": "stale_entries",
    "kvctl pods -n serving --preset llm-d": "serving/pod-b",
    "kvctl config set-context prod --namespace serving --preset aibrix": "--preset aibrix",
    "kvctl reproduce-2287": "bug A 4/32",
}
# These say nothing where there is nothing of what they look for.
SILENT = re.compile(r"select\(|> |--install|-o json \| jq .gaps")


def long_name(option: Any) -> str:
    return next(word for word in option.opts if word.startswith("--"))


def ids(value: object) -> str:
    return value.name if isinstance(value, Told) else str(value)


@pytest.mark.parametrize("columns", [80, 160])
@pytest.mark.parametrize("told", ALL, ids=ids)
def test_a_help_is_whole_on_any_terminal(kvctl, told: Told, columns: int) -> None:
    result = kvctl(*told.words, "--help", COLUMNS=str(columns))
    assert result.code == 0
    assert all(len(line) <= columns for line in result.out.splitlines())
    for option in told.options:
        name = (*option.secondary_opts, long_name(option))[0]
        behind = re.escape(option.metavar or "")
        assert re.search(rf"│ {name} .*{behind} ", result.out), f"{name} in\n{result.out}"
    assert not re.search(r"│.*<\w", result.out)  # no type of Python's


@pytest.mark.parametrize("told", ALL, ids=ids)
def test_every_help_ends_with_examples(kvctl, told: Told) -> None:
    assert told.examples
    shown = "\n".join(f"   {line}" for each in told.examples for line in each.splitlines())
    assert kvctl(*told.words, "-h", COLUMNS="60").out.rstrip().endswith(f" Examples\n{shown}")
    assert max(map(len, shown.splitlines())) <= 80
    assert all(example.startswith(told.name) for example in told.examples)


@pytest.mark.parametrize("told", ALL, ids=ids)
def test_options_stand_in_groups_of_known_names(told: Told) -> None:
    own = {"Publish again", "Cells", "Context"}
    known = {value for name, value in vars(panels).items() if name.isupper()} | own
    for option in told.options:
        loose = told.words == ("completion",) and option.name == "install"
        assert option.rich_help_panel in known or loose, option.name
    everywhere = {option.name for option in told.options
                  if option.rich_help_panel == panels.EVERYWHERE}  # fmt: skip
    assert everywhere >= {"color", "quiet", "verbose"}


def test_an_option_has_the_same_words_everywhere() -> None:
    words = defaultdict(set)
    for told in ALL:
        for option in told.options:
            words[long_name(option)].add((option.help, option.rich_help_panel))
    differing = {option for option, told in words.items() if len(told) > 1}
    assert differing == set(DIFFERENT)


def test_every_option_and_argument_is_explained() -> None:
    for told in ALL:
        for parameter in told.command.params:
            assert parameter.help, f"{told.name}: {parameter.name}"
            assert parameter.help.endswith((".", "…")), f"{told.name}: {parameter.help}"
            assert "[" not in parameter.help  # rich would take it for markup


def test_the_summaries_are_the_commands_own_and_fit() -> None:
    by_words = {told.words: told.command for told in ALL}
    for entry in COMMANDS:
        assert by_words[entry.name,].help.partition("\n")[0] == entry.summary
        assert len(entry.summary) <= 60


@pytest.fixture
def world(tmp_path: Path, valkey_server, db) -> Iterator[World]:
    if not has_loopback_network():
        pytest.skip("the loopback has one address only: the examples' hosts cannot be stood in for")
    with World(tmp_path, private_network(), valkey_server.port) as world:
        yield world


@pytest.mark.timeout(300)
@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_does_what_it_says(world: World, example: str) -> None:
    if "jq" in example and shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    if re.search(r" -n serving| -A| --preset", example):
        pytest.importorskip("kubernetes")
    world.furnish(example)
    endless = bool(ENDLESS.search(example))
    done = world.run(example, endless=endless)
    assert "Traceback" not in done.err
    expected = {3} if example in DRIFT else {0, 130} if endless else {0}
    assert done.codes[0] in expected, f"{done.codes}\n{done.out}\n{done.err}"
    if not endless:
        assert set(done.codes[1:]) <= {0}, done.err
    assert SILENT.search(example) or done.out or done.err
    assert SEEN.get(example, "") in done.out + done.err
    assert "warning" not in done.err, done.err
