"""What becomes of a command whose output nobody takes: a closed pipe, a full disk."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from command import COMMAND, environment

from kvctl.capture import open_capture
from kvctl.sim import SimConfig, SimPod

sys.path.insert(0, str(Path(__file__).parents[1] / "operate"))

from driving import complete, spec

Finish = Callable[..., tuple[int, str]]

# Tables, plain text, documents, lines, help; short and longer than any buffer.
COMMANDS = [
    "replay demo:fleet",
    "replay demo:fleet -o json",
    "replay demo:fleet --step",
    "replay demo:fleet --step -o jsonl",
    "replay demo:fleet --plot",
    "capture info demo:fleet",
    "report demo:fleet",
    "report demo:fleet -o -",
    "reproduce-2287 --trigger reset-idle",
    "explain",
    "completion bash",
    "tail --help",
    "--help",
    "--version",
]
FULL = "kvctl: cannot write to stdout: No space left on device (is the disk full?)"


@contextmanager
def closed_pipe() -> Iterator[IO[bytes]]:
    """A pipe whose reader is gone already: the first write meets that."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        yield pipe


@contextmanager
def full_disk() -> Iterator[IO[bytes]]:
    with Path("/dev/full").open("wb") as device:
        yield device


@pytest.fixture
def finish(tmp_path: Path) -> Finish:
    """Run a command line with that stdout; returns its code and what it said on stderr."""

    def run(line: str, out: IO[bytes], err: IO[bytes] | int = subprocess.PIPE) -> tuple[int, str]:
        done = subprocess.run(
            [*COMMAND, *shlex.split(line)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=environment(tmp_path),
            timeout=60,
            check=False,
        )
        return done.returncode, (done.stderr or b"").decode()

    return run


@pytest.mark.parametrize("line", COMMANDS)
def test_a_reader_that_is_gone_is_no_error(finish: Finish, line: str) -> None:
    with closed_pipe() as pipe:
        assert finish(line, pipe) == (0, "")


def in_bash(tmp_path: Path, line: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of shell, kvctl's arguments first; its code is kvctl's where that is not 0."""
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {shlex.join(COMMAND)} {line}"],
        capture_output=True,
        env=environment(tmp_path),
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("line", ["replay demo:fleet --step", "report demo:fleet -o -", "explain"])
def test_a_reader_that_has_enough_is_no_error(tmp_path: Path, line: str) -> None:
    done = in_bash(tmp_path, f"{line} | head -n 1")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"\n") == 1


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_without_a_standard_stream_the_work_is_done(tmp_path: Path, closed: str) -> None:
    copy = tmp_path / "copy.kvcap"
    ways = [
        (f"capture convert demo:fleet {copy}", 0),
        ("replay x.kvcap", 1),
        ("reset --pod name=x,host=127.0.0.1", 2),
    ]
    for words, code in ways:
        done = in_bash(tmp_path, f"{words} {closed}")
        assert done.returncode == code
        assert b"Traceback" not in done.stderr
    with open_capture(copy) as reader:
        assert len(list(reader)) == 70


@pytest.mark.parametrize("line", COMMANDS)
def test_a_full_disk_is_one_line(finish: Finish, line: str) -> None:
    with full_disk() as device:
        assert finish(line, device) == (1, f"{FULL}\n")


def test_talk_that_nobody_hears_stops_nothing(finish: Finish, tmp_path: Path) -> None:
    copy, out = tmp_path / "copy.kvcap", tmp_path / "out"
    with closed_pipe() as gone, out.open("wb") as file:
        assert finish(f"capture convert demo:fleet {copy}", file, gone)[0] == 0
        assert finish("replay nothing.kvcap", file, gone)[0] == 1
        assert finish("replay --nonsense", file, gone)[0] == 2
        assert finish(f"replay {copy} -o json", file, gone)[0] == 0
    assert out.read_bytes().startswith(b"{")


def test_what_came_is_in_the_capture_though_nobody_reads_the_lines(
    finish: Finish, kvctl, tmp_path: Path
) -> None:
    capture = tmp_path / "x.kvcap"
    with SimPod(SimConfig()) as pod, closed_pipe() as pipe:
        complete(pod)
        code, told = finish(f"tail --pod {spec(pod)} --capture {capture} --timeout 20", pipe)
    assert code == 0
    assert "1 record written" in told
    assert kvctl("capture", "info", capture, "-o", "json").json["blocks_stored"] == 4
