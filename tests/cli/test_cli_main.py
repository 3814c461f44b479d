"""The command as a whole: help, version, completion, usage errors."""

from __future__ import annotations

from pathlib import Path

import pytest

import kvctl as package
from kvctl.text import plural, printable


def test_help_lists_the_commands(kvctl) -> None:
    for arguments in (["--help"], ["-h"], []):
        result = kvctl(*arguments)
        assert result.code == 0
        for command in ("tail", "replay", "capture", "completion"):
            assert command in result.out


@pytest.mark.parametrize("command", ["tail", "replay", "capture", "capture info", "completion"])
def test_every_command_has_help(kvctl, command: str) -> None:
    result = kvctl(*command.split(), "--help")
    assert result.code == 0
    assert f"kvctl {command}" in result.out


def test_the_version_is_the_packages(kvctl) -> None:
    assert kvctl("--version").out == f"kvctl {package.__version__}\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("tial", "kvctl: there is no command 'tial' (did you mean tail?)"),
        ("reconsile", "kvctl: there is no command 'reconsile' (did you mean reconcile?)"),
        ("xyzzy", "kvctl: there is no command 'xyzzy' (see kvctl --help)"),
        ("index shwo", "kvctl: index has no command 'shwo' (did you mean show?)"),
        ("tail --contxt x", "kvctl tail: there is no option '--contxt' (did you mean --context?)"),
        ("index show --blcks", "kvctl index show: there is no option '--blcks' "
                               "(did you mean --blocks?)"),
        ("--verison", "kvctl: there is no option '--verison' (did you mean --version?)"),
        ("tail -Z", "kvctl tail: there is no option '-Z' (see kvctl tail --help)"),
        ("replay demo:fleet --router aibrx", "kvctl replay: invalid value for '--router': 'aibrx' "
                                             "is not one of longest, aibrix "
                                             "(did you mean aibrix?)"),
        ("replay demo:fleet --speed fast", "kvctl replay: invalid value for '--speed': 'fast' is "
                                           "not a number (see kvctl replay --help)"),
        ("replay demo:fleet --speed nan", "kvctl replay: invalid value for '--speed': 'nan' is "
                                          "not a number (see kvctl replay --help)"),
        ("replay demo:fleet --speed -1", "kvctl replay: invalid value for '--speed': -1 is less "
                                         "than 0 (see kvctl replay --help)"),
        ("sim --pods 99", "kvctl sim: invalid value for '--pods': 99 is more than 64 "
                          "(see kvctl sim --help)"),
        ("sim --pods 1.5", "kvctl sim: invalid value for '--pods': '1.5' is not a whole number "
                           "(see kvctl sim --help)"),
        ("completion", "kvctl completion: missing argument 'SHELL'. Choose from: bash, zsh, fish "
                       "(see kvctl completion --help)"),
        ("replay demo:fleeet", None),
    ],
)  # fmt: skip
def test_a_wrong_word_is_one_line_that_names_the_right_one(kvctl, words, told) -> None:
    result = kvctl(*words.split())
    if told is None:
        assert result.code == 1
        assert "demo:fleet" in result.err
        return
    assert (result.code, result.out, result.err) == (2, "", f"{told}\n")


@pytest.mark.parametrize(
    ("words", "near"),
    [
        ("tail --context prd", "did you mean prod?"),
        ("config use-context pord", "did you mean prod?"),
        ("pods pod-x", "did you mean pod-a or pod-b?"),
        ("reset web1 --context prod", "did you mean web-1?"),
    ],
)
def test_a_pod_or_context_that_is_not_there_brings_up_its_neighbours(
    kvctl, tmp_path: Path, words: str, near: str
) -> None:
    (tmp_path / "config.toml").write_text(
        'current-context = "lab"\n[contexts.lab.pods]\npod-a = {host = "10.0.0.7"}\n'
        'pod-b = {host = "10.0.0.8"}\n[contexts.prod.pods]\nweb-1 = {host = "10.0.0.9"}\n'
    )
    result = kvctl(*words.split())
    assert result.code == 2
    assert near in result.err
    assert len(result.err.splitlines()) == 1


def test_importing_the_command_line_loads_nothing_heavy(kvctl) -> None:
    import subprocess
    import sys

    heavy = [
        "zmq", "requests", "msgspec", "xxhash", "zstandard", "prometheus_client", "tomlkit",
        "pydantic", "rich.console", "logging", "kvctl.cli.tail", "kvctl.fleet",
    ]  # fmt: skip
    script = f"import sys, kvctl.cli.main; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ünïcode", "plain ünïcode"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\u202eevil", "\\u202eevil"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_a_terminal_could_act_on_is_spelled_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_counts_agree_with_their_noun() -> None:
    assert plural(1, "gap") == "1 gap"
    assert plural(2, "batch") == "2 batches"
    assert plural(1234, "block") == "1,234 blocks"


def test_a_terminal_without_unicode_gets_escapes(kvctl) -> None:
    result = kvctl("replay", "demo:warm", "--step", PYTHONIOENCODING="ascii")
    assert result.code == 0
    assert "\\u2026" in result.out
