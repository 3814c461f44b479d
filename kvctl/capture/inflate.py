"""zstd data as a plain stream that ends where the file is cut or damaged.

The data is inflated block by block: what stands in front of the block that is cut or damaged is
whole, and nothing of it is lost (RFC 8878, 3.1.1, for frames, blocks and their sizes).
"""

from __future__ import annotations

import io
from typing import Any, BinaryIO

import zstandard

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

_SHORTEST_HEADER = 5
_BLOCK_HEADER = 3
_RUN_LENGTH = 1
_CHECKSUM = 4


class Inflated(io.RawIOBase):
    """The contents of ``file``, which may hold several frames one behind the other.

    ``fault`` is empty as long as all is well; then a sentence on the cut or the damage.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.fault = ""
        self._file = file
        self._place = 0
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame: Any = None
        self._has_checksum = False
        self._contents = memoryview(b"")

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with what comes next; 0 at the end."""
        view = memoryview(buffer).cast("B")
        while not self._contents:
            if self.fault or not self._advance():
                return 0
        count = min(len(view), len(self._contents))
        view[:count] = self._contents[:count]
        self._contents = self._contents[count:]
        return count

    def _advance(self) -> bool:
        """Inflate the next part; False at the end."""
        begins = self._frame is None
        part, whole = self._frame_header() if begins else self._block()
        if begins and not part:
            return False
        if not whole:
            self._stop("cut off", part)
            return False
        try:
            if begins:
                self._has_checksum = zstandard.get_frame_parameters(part).has_checksum
                self._frame = self._decompressor.decompressobj()
            contents = self._frame.decompress(part)
        except zstandard.ZstdError as error:
            self._stop(f"damaged ({str(error).rpartition(': ')[2]})", part)
            return False
        if self._frame.eof:
            self._frame = None
        self._place += len(part)
        self._contents = memoryview(contents)
        return True

    def _frame_header(self) -> tuple[bytes, bool]:
        """The next frame's header, and whether that is all of it; empty at the end."""
        start = self._file.read(_SHORTEST_HEADER)
        if len(start) < _SHORTEST_HEADER:
            return start, False
        rest = zstandard.frame_header_size(start) - _SHORTEST_HEADER
        header = start + self._file.read(rest)
        return header, len(header) == len(start) + rest

    def _block(self) -> tuple[bytes, bool]:
        """The next block, with the frame's checksum behind the last, and whether it is whole."""
        start = self._file.read(_BLOCK_HEADER)
        if len(start) < _BLOCK_HEADER:
            return start, False
        told = int.from_bytes(start, "little")
        is_last, kind, size = told & 1, told >> 1 & 3, told >> 3
        size = 1 if kind == _RUN_LENGTH else size
        if is_last and self._has_checksum:
            size += _CHECKSUM
        block = start + self._file.read(size)
        return block, len(block) == len(start) + size

    def _stop(self, how: str, part: bytes) -> None:
        left = len(part)
        while more := self._file.read(1024 * 1024):
            left += len(more)
        self.fault = f"the compressed data is {how} at byte {self._place}: {left} bytes left unread"
