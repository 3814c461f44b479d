"""Opens capture files, whatever their form, and reads what they hold."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TypeVar, cast

from kvctl.capture.demo import DEMO_PREFIX, demo_path
from kvctl.capture.errors import CaptureError
from kvctl.capture.format import CaptureHeader, Stored, may_begin
from kvctl.capture.framing import Frames
from kvctl.capture.inflate import ZSTD_MAGIC, Inflated
from kvctl.capture.jsonl import read_lines

STDIN = "-"
_T = TypeVar("_T")
_REMEDY = "a .kvcap or .jsonl file, made by kvctl tail --capture or kvctl capture convert"


def open_capture(source: str | Path) -> CaptureReader:
    """Open a capture: a path, `demo:NAME` for a recording that ships with kvctl, `-` for stdin.

    Its form is told by its content. Raises `CaptureError` for what is not a capture, or is one of
    a newer version.
    """
    return CaptureReader(source)


class CaptureReader:
    """Yields what a capture holds, in the order of the file.

    ``warnings`` grows while reading: damage, cuts, bad lines. ``size`` is the file's in bytes (0
    where it is not known), ``position`` how far the reading has come.
    """

    def __init__(self, source: str | Path) -> None:
        self.source = str(source)
        self.header = CaptureHeader()
        self.warnings: list[str] = []
        self.is_lines = False
        self._inflated: Inflated | None = None
        self._stack = ExitStack()
        try:
            self._file = self._open()
            self.size = _size(self._file)
            self._plain = self._uncompressed(self._file)
            self._records = self._start()
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> CaptureReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Stored]:
        return self._records

    @property
    def is_compressed(self) -> bool:
        """Whether the file is zstd."""
        return self._inflated is not None

    @property
    def is_torn(self) -> bool:
        """Once read to the end: whether the compressed data stops in the middle."""
        return self._inflated is not None and self._inflated.torn

    @property
    def position(self) -> int:
        """Bytes of the file read so far."""
        return self._file.tell() if self.size else 0

    def close(self) -> None:
        """Close the file."""
        self._stack.close()

    def _open(self) -> io.BufferedReader:
        if self.source == STDIN:
            return cast(io.BufferedReader, sys.stdin.buffer)
        path = demo_path(self.source) if self.source.startswith(DEMO_PREFIX) else Path(self.source)
        try:
            return self._stack.enter_context(path.open("rb"))
        except OSError as error:
            raise CaptureError(f"cannot read {self.source}: {error.strerror}") from None

    def _uncompressed(self, file: io.BufferedReader) -> io.BufferedReader:
        if file.peek(4)[:4] != ZSTD_MAGIC:
            return file
        self._inflated = Inflated(file, self.warnings.append)
        return self._stack.enter_context(io.BufferedReader(self._inflated, 1024 * 1024))

    def _start(self) -> Iterator[Stored]:
        try:
            first = self._plain.peek(64)
        except OSError as error:
            raise CaptureError(f"cannot read {self.source}: {error.strerror}") from None
        if not first:
            raise CaptureError(f"{self.source} is empty", remedy=_REMEDY)
        if first.lstrip()[:1] == b"{":
            return self._json_lines()
        if not may_begin(first, 0):
            raise CaptureError(f"{self.source} is not a capture", remedy=_REMEDY)
        return self._framed()

    def _json_lines(self) -> Iterator[Stored]:
        self.is_lines = True
        records = read_lines(self._plain, self.warnings.append)
        first = next(records, None)
        if first is None:
            raise CaptureError(f"{self.source} is not a capture", remedy=_REMEDY)
        return _chain(first, records)

    def _framed(self) -> Iterator[Stored]:
        frames = iter(Frames(self._plain.read1, self.warnings.append))
        try:
            first = next(frames, None)
        except CaptureError as error:
            raise CaptureError(f"{self.source}: {error.message}", remedy=error.remedy) from None
        if first is None:
            raise CaptureError(f"{self.source} is not a capture", remedy=_REMEDY)
        if isinstance(first, CaptureHeader):
            self.header = first
        return self._without_headers(first, frames)

    def _without_headers(
        self, first: CaptureHeader | Stored, rest: Iterator[CaptureHeader | Stored]
    ) -> Iterator[Stored]:
        for each in _chain(first, rest):
            if isinstance(each, CaptureHeader):
                self.header = _merged(self.header, each)
            else:
                yield each


def _chain(first: _T, rest: Iterator[_T]) -> Iterator[_T]:
    yield first
    yield from rest


def _merged(first: CaptureHeader, later: CaptureHeader) -> CaptureHeader:
    """Of files joined: the first's birth, and the pods of all."""
    return CaptureHeader(
        first.created or later.created,
        first.kvctl or later.kvctl,
        later.version,
        {**first.pods, **later.pods},
    )


def _size(file: io.BufferedReader) -> int:
    try:
        status = os.fstat(file.fileno())
    except (OSError, ValueError):
        return 0
    return status.st_size
