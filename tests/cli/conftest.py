"""Runs the real command: as a process with pipes, or in a real terminal."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pexpect
import pyte
import pytest
from command import COMMAND, environment

PATIENCE = 30.0


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def objects(self) -> list[dict[str, Any]]:
        """stdout as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Result]


@pytest.fixture
def kvctl(tmp_path: Path) -> Run:
    """Run `kvctl ARGUMENTS...` to its end, in an empty folder; no traceback may show."""
    folder = tmp_path / "cwd"
    folder.mkdir()

    def run(*arguments: str | Path, stdin: str | bytes = b"", **env: str) -> Result:
        done = subprocess.run(
            COMMAND + [str(argument) for argument in arguments],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            timeout=PATIENCE * 2,
            env=environment(tmp_path, **env),
            cwd=folder,
            check=False,
        )
        result = Result(done.returncode, done.stdout.decode(), done.stderr.decode())
        assert "Traceback" not in result.err, result.err
        return result

    return run


class Running:
    """A command that runs while the test goes on; output goes to files."""

    def __init__(self, arguments: list[str], env: dict[str, str], folder: Path) -> None:
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                COMMAND + arguments, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env
            )

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def wait_until(self, condition: Callable[[], object], what: str = "") -> None:
        """Wait for a condition; fails with what the command said so far."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"{what}\nout: {self.out[-2000:]}\nerr: {self.err}"
            time.sleep(0.02)

    def interrupt(self, number: int = signal.SIGINT) -> int:
        """Send a signal (Ctrl-C by default) and wait for the end; returns the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(PATIENCE)
        assert "Traceback" not in self.err, self.err
        return code


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Start `kvctl ARGUMENTS...`; killed at the end of the test if still running."""
    running: list[Running] = []

    def start_one(*arguments: str | Path, **env: str) -> Running:
        folder = tmp_path / f"run{len(running)}"
        folder.mkdir()
        command = [str(argument) for argument in arguments]
        running.append(Running(command, environment(tmp_path, **env), folder))
        return running[-1]

    yield start_one
    for each in running:
        if each.process.poll() is None:
            each.process.kill()
        each.process.wait()


class Terminal:
    """A command in a terminal of its own; what it drew is on `lines`."""

    def __init__(self, arguments: list[str], env: dict[str, str], columns: int, rows: int) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._child = pexpect.spawn(
            COMMAND[0],
            COMMAND[1:] + arguments,
            env=env | {"TERM": "xterm-256color"},
            dimensions=(rows, columns),
            timeout=PATIENCE,
        )

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def wait_for(self, wanted: str) -> None:
        """Read until the screen shows the text."""
        deadline = time.monotonic() + PATIENCE
        while wanted not in self.text:
            assert time.monotonic() < deadline, f"no {wanted!r} on:\n{self.text}"
            if not self._read():
                assert wanted in self.text, f"ended without {wanted!r}:\n{self.text}"

    def send(self, keys: str) -> None:
        self._child.send(keys)

    def end(self) -> int:
        """Read to the end of the command; returns its exit code."""
        while self._read():
            pass
        self._child.close()
        return self._child.exitstatus

    def _read(self) -> bool:
        try:
            data = self._child.read_nonblocking(65536, timeout=0.2)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.raw += data
        self._stream.feed(data)
        return True

    def kill(self) -> None:
        self._child.close(force=True)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Start `kvctl ARGUMENTS...` in a terminal of `columns` x `rows`."""
    terminals: list[Terminal] = []

    def open_one(*arguments: str | Path, columns: int = 80, rows: int = 30, **env: str) -> Terminal:
        command = [str(argument) for argument in arguments]
        terminals.append(Terminal(command, environment(tmp_path, **env), columns, rows))
        return terminals[-1]

    yield open_one
    for each in terminals:
        each.kill()
