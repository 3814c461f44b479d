"""Opens capture files, whatever their form, and reads what they hold."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import cast

from kvctl.capture.demo import DEMO_PREFIX, demo_file
from kvctl.capture.errors import CaptureError
from kvctl.capture.format import SIGNATURE, CaptureHeader, Stored, may_begin
from kvctl.capture.framing import Frames
from kvctl.capture.inflate import ZSTD_MAGIC, Inflated
from kvctl.capture.jsonl import read_lines

STDIN = "-"
# How much of the beginning is looked at, at most.
_START = 64 * 1024
_MOST_WARNINGS = 100
_REMEDY = "a .kvcap or .jsonl file, made by kvctl tail --capture or kvctl capture convert"
_NAME_ONE = "name a capture file, demo:NAME or - for stdin"


def open_capture(source: str | Path) -> CaptureReader:
    """Open a capture: a path, `demo:NAME` for a recording that ships with kvctl, `-` for stdin.

    Its form is told by its content. Raises `CaptureError` for what is not a capture, or is one of
    a newer version.
    """
    return CaptureReader(source)


class CaptureReader:
    """Yields what a capture holds, in the order of the file.

    ``warnings`` grows while reading: damage, cuts, bad lines. ``size`` is the file's in bytes (0
    where it is not known), ``position`` how far the reading has come. Reading raises
    `CaptureError` where the file cannot be read any further, or a newer version begins in it.
    """

    def __init__(self, source: str | Path) -> None:
        self.source = str(source)
        self.header = CaptureHeader()
        self.warnings: list[str] = []
        self.is_lines = False
        self._untold = 0
        self._inflated: Inflated | None = None
        self._stack = ExitStack()
        try:
            with self._errors():
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
        return self._inflated is not None and bool(self._inflated.fault)

    @property
    def position(self) -> int:
        """Bytes of the file read so far."""
        return self._file.tell() if self.size else 0

    def reads(self, path: Path) -> bool:
        """Whether the file being read is the one at ``path``, by whatever name."""
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), path.stat())
        except (OSError, ValueError):
            return False

    def close(self) -> None:
        """Close the file."""
        self._stack.close()

    def _open(self) -> io.BufferedReader:
        if self.source == STDIN:
            return cast(io.BufferedReader, sys.stdin.buffer)
        if self.source.startswith(DEMO_PREFIX):
            demo = demo_file(self.source)
            return self._stack.enter_context(cast(io.BufferedReader, demo.open("rb")))
        path = Path(self.source)
        return self._stack.enter_context(cast(io.BufferedReader, path.open("rb", _START)))

    def _uncompressed(self, file: io.BufferedReader) -> io.BufferedReader:
        if file.peek(len(ZSTD_MAGIC))[: len(ZSTD_MAGIC)] != ZSTD_MAGIC:
            return file
        self._inflated = Inflated(file)
        return self._stack.enter_context(io.BufferedReader(self._inflated, 1024 * 1024))

    def _start(self) -> Iterator[Stored]:
        start = self._plain.peek(_START)
        if not start:
            if self._inflated is not None and self._inflated.fault:
                raise CaptureError(f"{self.source}: {self._inflated.fault}", remedy=_REMEDY)
            raise CaptureError(f"{self.source} is empty", remedy=_REMEDY)
        if start.lstrip()[:1] == b"{":
            records = self._lines()
        elif may_begin(start) or _holds_record(start):
            records = self._framed()
        else:
            raise self._is_none()
        return self._to_the_end(records)

    def _lines(self) -> Iterator[Stored]:
        self.is_lines = True
        records = read_lines(self._plain, self._warn)
        first = next(records, None)
        if first is None and self.warnings:
            raise self._is_none()
        return records if first is None else chain((first,), records)

    def _framed(self) -> Iterator[Stored]:
        names_itself = self._plain.peek(_START)[1:].startswith(SIGNATURE)
        frames = Frames(self._plain.read1, self._warn)
        parts = self._named(iter(frames))
        first = next(parts, None)
        if first is None:
            if not names_itself:
                raise self._is_none()
            return self._without_headers(parts, frames)
        if isinstance(first, CaptureHeader):
            self.header = first
        return self._without_headers(chain((first,), parts), frames)

    def _named(self, parts: Iterator[CaptureHeader | Stored]) -> Iterator[CaptureHeader | Stored]:
        """The same; what is wrong with the version says in which file."""
        try:
            yield from parts
        except CaptureError as error:
            raise CaptureError(f"{self.source}: {error.message}", remedy=error.remedy) from None

    def _without_headers(
        self, parts: Iterator[CaptureHeader | Stored], frames: Frames
    ) -> Iterator[Stored]:
        for each in parts:
            if isinstance(each, CaptureHeader):
                self.header = _merged(self.header, each)
            else:
                yield each
        # Where compressed data is cut, that says it all.
        if frames.cut and not self.is_torn:
            self._warn(f"cut off at byte {frames.position}: {frames.cut} bytes left unread")

    def _to_the_end(self, records: Iterator[Stored]) -> Iterator[Stored]:
        with self._errors():
            yield from records
        if self._inflated is not None and self._inflated.fault:
            self._warn(self._inflated.fault)
        if self._untold:
            self.warnings.append(f"{self._untold} more warnings like these")

    def _warn(self, text: str) -> None:
        if len(self.warnings) < _MOST_WARNINGS:
            self.warnings.append(text)
        else:
            self._untold += 1

    def _is_none(self) -> CaptureError:
        return CaptureError(f"{self.source} is not a capture", remedy=_REMEDY)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CaptureError(
                f"cannot read {self.source}: {error.strerror}", remedy=_NAME_ONE
            ) from None


def _holds_record(start: bytes) -> bool:
    """Whether a whole record is there, though the beginning is damaged."""
    return any(True for _ in Frames(io.BytesIO(start).read, lambda _: None))


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
