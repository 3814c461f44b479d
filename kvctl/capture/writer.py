"""Writes capture files: append-only, readable up to whatever moment the writing ends."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import zstandard

from kvctl.capture.errors import CaptureError
from kvctl.capture.format import (
    MAX_RECORD,
    CaptureHeader,
    Stored,
    new_header,
    pack_header,
    pack_record,
    stored,
)
from kvctl.capture.jsonl import pack_line
from kvctl.capture.reader import STDIN, open_capture
from kvctl.events import MAX_PAYLOAD, Note, Record, WireBatch

FLUSH_EVERY_S = 0.5
_BUFFER = 256 * 1024
_MODE = 0o600  # a capture holds its users' prompts
# What a record needs besides its topic and its payload, generously.
_BESIDES = 64 * 1024


class CaptureWriter:
    """Writes records to ``path``: JSON lines for `.jsonl`, else `.kvcap`; compressed for `.zst`.

    An existing file is refused, unless ``force`` replaces it or ``append`` continues it.
    ``header`` is the header of the capture that is copied, for a new one ``pods`` is enough. What
    was written more than half a second before the last `write` or `flush` survives a killed
    process. ``records`` and ``bytes_written`` count what this writer wrote. Raises `CaptureError`
    that names the file.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        pods: Mapping[str, Any] | None = None,
        header: CaptureHeader | None = None,
        force: bool = False,
        append: bool = False,
    ) -> None:
        self.path = Path(path)
        self.records = 0
        self.bytes_written = 0
        name = self.path.name.lower()
        self._compressed = name.endswith(".zst")
        self._lines = name.removesuffix(".zst").endswith(".jsonl")
        self._flushed = time.monotonic()
        self._pending = bytearray()
        if append:
            self._check_appendable()
        self._file = self._open(force=force, append=append)
        self._zstd = (
            zstandard.ZstdCompressor(write_checksum=True).compressobj()
            if self._compressed
            else None
        )
        try:
            if not self._lines:
                self._put(pack_header(header or new_header(pods)))
            self.flush()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> CaptureWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def write(self, record: Record | WireBatch) -> None:
        """Add one record; of a decoded batch, the message it came in.

        A message too large to be read again is replaced by a note that says so.
        """
        kept = _readable(stored(record))
        self._put(pack_line(kept) if self._lines else pack_record(kept))
        self.records += 1
        if time.monotonic() - self._flushed >= FLUSH_EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Hand everything to the operating system."""
        self._flushed = time.monotonic()
        if self._zstd is not None:
            self._pending += self._zstd.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        self._hand_over()

    def close(self) -> None:
        """Finish the file. May be called again."""
        if self._file.closed:
            return
        try:
            if self._zstd is not None:
                self._pending += self._zstd.flush()
            self._hand_over()
        finally:
            self._file.close()

    def _put(self, data: bytes) -> None:
        self._pending += data if self._zstd is None else self._zstd.compress(data)
        if len(self._pending) > _BUFFER:
            self._hand_over()

    def _hand_over(self) -> None:
        """Write what is pending. What a full disk does not take stays pending, in its order."""
        while self._pending:
            try:
                count = self._file.write(self._pending) or 0
            except OSError as error:
                raise CaptureError(
                    f"cannot write {self.path}: {error.strerror}",
                    remedy="what was written before stays",
                ) from None
            self.bytes_written += count
            del self._pending[:count]

    def _open(self, *, force: bool, append: bool) -> io.FileIO:
        if str(self.path) == STDIN:  # where captures are read that means stdin
            raise CaptureError(
                "'-' is no file to write a capture to",
                remedy="name one; /dev/stdout with --force writes into a pipe",
            )
        flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if append else 0)
        if not append:
            flags |= os.O_TRUNC if force else os.O_EXCL
        try:
            file = io.FileIO(os.open(self.path, flags, _MODE), "wb")
        except FileExistsError:
            raise CaptureError(
                f"{self.path} exists", remedy="--force overwrites it, --append continues it"
            ) from None
        except OSError as error:
            raise CaptureError(
                f"cannot write {self.path}: {error.strerror}",
                remedy="name a file in a folder that exists and that you may write to",
            ) from None
        if force and stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            # The mode of the file that was there; some file systems have none.
            with contextlib.suppress(OSError):
                os.fchmod(file.fileno(), _MODE)
        return file

    def _check_appendable(self) -> None:
        """Whether what is there is a capture that more can stand behind."""
        if not self.path.exists() or (self.path.is_file() and not self.path.stat().st_size):
            return
        with open_capture(self.path) as reader:
            for _ in reader:
                pass
            if (reader.is_lines, reader.is_compressed) != (self._lines, self._compressed):
                raise CaptureError(
                    f"{self.path} has another form than its name says",
                    remedy="kvctl capture convert makes a file of the form you want",
                )
            if reader.is_torn:
                raise CaptureError(
                    f"{self.path} stops in the middle of its compressed data",
                    remedy="kvctl capture convert copies what is whole",
                )
        if self._lines and not reader.is_compressed and _last_byte(self.path) != b"\n":
            raise CaptureError(
                f"{self.path} ends in the middle of a line",
                remedy="kvctl capture convert copies what is whole",
            )


def _readable(record: Stored) -> Stored:
    if not isinstance(record, WireBatch):
        return record
    size = len(record.topic) + len(record.payload)
    if len(record.payload) <= MAX_PAYLOAD and size <= MAX_RECORD - _BESIDES:
        return record
    text = f"seq {record.seq}: a message of {size} bytes is too large for a capture"
    return Note(record.recv_ns, record.pod, record.rank, text)


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1)
