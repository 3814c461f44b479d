"""stdout whose faults nothing on the way takes for its own, and stderr that has none.

A failing write is an `OSError` like any: rich and typer end a program with code 1 where the reader
of a pipe went away, and an `except OSError` around a command's work would blame the work.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from pathlib import Path
from typing import Any, TextIO


class OutputError(Exception):
    """stdout does not take what is written to it."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(f"cannot write to stdout: {cause.strerror}")
        self.reader_gone = cause.errno == errno.EPIPE


class _Stdout(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OutputError(error) from None


class _Stderr(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:  # talk that nobody hears is no reason to stop the work
            return len(data)


def guard_stdio() -> None:
    """Put such streams in the places of `sys.stdout` and `sys.stderr`.

    A character that their encoding lacks is written as its escape. Where the program was started
    without a descriptor (`>&-`), what is written goes nowhere, and there is nothing to read.
    """
    sys.stdin = sys.stdin or _nowhere("r")
    sys.stdout = _guarded(sys.stdout, _Stdout) if sys.stdout else _nowhere("w")
    sys.stderr = _guarded(sys.stderr, _Stderr) if sys.stderr else _nowhere("w")


def _nowhere(mode: str) -> Any:
    return Path(os.devnull).open(mode, encoding="utf-8")


def _guarded(stream: Any, kind: type[io.FileIO]) -> TextIO:
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(kind(stream.fileno(), "wb", closefd=False)),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def check_reader() -> None:
    """Raise `OutputError` where whoever read our stdout is gone (`| head -1`).

    A write would find out as well, but a stream that brings nothing gives no occasion for one.
    """
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        return
    if any(events & select.POLLERR for _descriptor, events in poll.poll(0)):
        raise OutputError(BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)))


def drop_output() -> None:
    """Send what stdout has not taken, and all that follows, to nowhere.

    It would fail again when the interpreter flushes it.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
