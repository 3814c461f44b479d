"""zstd data as a plain stream, that ends with a warning where the file is cut or damaged."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import zstandard

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

# Small, since a hostile file may inflate each byte to tens of kilobytes.
_CHUNK = 4096
_MAX_WINDOW = 2**27


class Inflated(io.RawIOBase):
    """The contents of ``file``, which may hold several frames one behind the other.

    ``torn`` once the end is reached in the middle of a frame, or at damage.
    """

    def __init__(self, file: io.BufferedReader, warn: Callable[[str], None]) -> None:
        self.torn = False
        self._file = file
        self._warn = warn
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
        self._frame: Any = None
        self._pending = memoryview(b"")

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with what comes next; 0 at the end."""
        view = memoryview(buffer).cast("B")
        while not self._pending:
            if self.torn or not self._advance():
                return 0
        count = min(len(view), len(self._pending))
        view[:count] = self._pending[:count]
        self._pending = self._pending[count:]
        return count

    def _advance(self) -> bool:
        """Inflate the next chunk; False at the end."""
        data = self._file.read1(_CHUNK)
        if not data:
            if self._frame is not None:
                self._tear("cut off")
            return False
        out = []
        while data:
            if self._frame is None:
                self._frame = self._decompressor.decompressobj()
            try:
                out.append(self._frame.decompress(data))
            except zstandard.ZstdError:
                self._tear("damaged")
                break
            data = b""
            if self._frame.eof:
                data, self._frame = self._frame.unused_data, None
        self._pending = memoryview(b"".join(out))
        return True

    def _tear(self, how: str) -> None:
        self.torn = True
        self._warn(f"the compressed data is {how} at byte {self._file.tell()}; the rest is unread")
