"""The command as a whole: help, version, completion, usage errors."""

from __future__ import annotations

from pathlib import Path

import pytest

import kvctl as package
from kvctl.text import plural, printable

ROOT = Path(__file__).parents[2]


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


def test_a_misspelt_command_suggests_the_right_one(kvctl) -> None:
    result = kvctl("tial")
    assert result.code == 2
    assert result.err == "kvctl: there is no command 'tial' (did you mean tail?)\n"


def test_importing_the_command_line_loads_nothing_heavy(kvctl) -> None:
    import subprocess
    import sys

    heavy = ["zmq", "requests", "msgspec", "xxhash", "zstandard", "prometheus_client", "tomlkit"]
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
