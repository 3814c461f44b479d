"""Bytes of a `.kvcap` to records, past damage where the next record can be found."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

import msgpack

from kvctl.capture.format import (
    BATCH_HEAD,
    HEADER_KEY,
    MARK_HEAD,
    MAX_RECORD,
    CaptureHeader,
    Stored,
    may_begin,
    read_header,
    read_record,
)

_CHUNK = 1024 * 1024
# Bytes that must lie behind a record before it can be told whether another begins there.
_LOOK_AHEAD = 16
_FIRST_TRY = 64 * 1024
_FAULTS = (msgpack.UnpackException, ValueError, TypeError, RecursionError)


class _Parsed(NamedTuple):
    """An object found in the window: ``record`` None if it is none of ours."""

    record: CaptureHeader | Stored | None
    end: int


class Frames:
    """Reads records off ``read`` (n -> bytes, empty at the end), a window of the file at a time.

    ``warn`` hears of damage. ``position`` counts the bytes dealt with.
    """

    def __init__(self, read: Callable[[int], bytes], warn: Callable[[str], None]) -> None:
        self._read = read
        self._warn = warn
        self._window = b""
        self._ended = False
        self.position = 0

    def __iter__(self) -> Iterator[CaptureHeader | Stored]:
        while True:
            yield from self._whole_records()
            if self._more():
                continue
            if not self._window:
                return
            damaged = yield from self._past_damage()
            if not damaged:
                return

    def _whole_records(self) -> Iterator[CaptureHeader | Stored]:
        """Records in the window up to its end or to the first damage."""
        unpacker = _unpacker()
        unpacker.feed(self._window)
        done = 0
        try:
            while True:
                value = unpacker.unpack()
                end = unpacker.tell()
                record = _known(value)
                if record is None or not self._settled(end):
                    break
                yield record
                done = end
        except _FAULTS:
            pass
        finally:
            self._drop(done)

    def _settled(self, end: int) -> bool:
        """Whether what lies behind is known to be a record, or the end of the file."""
        if end + _LOOK_AHEAD > len(self._window) and not self._ended:
            return False
        return may_begin(self._window, end)

    def _past_damage(self) -> Generator[CaptureHeader | Stored, None, bool]:
        """At the end of the file, or in front of damage: go on behind it, if anything is there.

        Yields a good record that stands right before the damage. Returns whether to go on.
        """
        first = _parse(self._window, 0)
        good = first is not None and first.record is not None
        if first is not None and good:
            # Its own length may be what is damaged: then it swallowed records that are whole.
            inside = self._find(1, first.end)
            if inside is None:
                assert first.record is not None
                yield first.record
                self._drop(first.end)
                if not self._window:
                    return False
                inside = self._find(0)
        else:
            inside = self._find(1)
        if inside is None:
            self._warn(self._rest(damaged=good or first is not None))
            self.position += len(self._window)
            self._window = b""
            return False
        self._warn(f"damage at byte {self.position}: {inside} bytes skipped")
        self._drop(inside)
        return True

    def _rest(self, *, damaged: bool) -> str:
        what = "damaged" if damaged else "cut off"
        return f"{what} at byte {self.position}: {len(self._window)} bytes left unread"

    def _find(self, start: int, stop: int | None = None) -> int | None:
        """Where the next whole record begins that another record, or the end, follows."""
        window = self._window
        stop = len(window) if stop is None else stop
        at = start
        while True:
            begins = self._candidates(at, stop)
            if not begins:
                return None
            at = min(begins)
            parsed = _parse(window, at)
            if parsed is not None and parsed.record is not None and may_begin(window, parsed.end):
                return at
            at += 1

    def _candidates(self, start: int, stop: int) -> list[int]:
        """Where in the window a batch, a mark and a header may begin next."""
        window = self._window
        begins = [window.find(head, start, stop) for head in (BATCH_HEAD, MARK_HEAD)]
        key = window.find(HEADER_KEY, start + 1, stop + len(HEADER_KEY))
        return [at for at in (*begins, key - 1) if at >= start]

    def _more(self) -> bool:
        """Read on while the window holds no more than one record could; False at the end."""
        if self._ended or len(self._window) > MAX_RECORD:
            return False
        data = self._read(max(_CHUNK, len(self._window)))
        self._ended = not data
        self._window += data
        return True

    def _drop(self, count: int) -> None:
        self._window = self._window[count:]
        self.position += count


def _parse(window: bytes, at: int) -> _Parsed | None:
    """The msgpack object that begins there, None where none is whole."""
    for size in (_FIRST_TRY, MAX_RECORD):
        unpacker = _unpacker()
        unpacker.feed(window[at : at + size])
        try:
            value = unpacker.unpack()
        except msgpack.OutOfData:
            continue
        except _FAULTS:
            return None
        return _Parsed(_known(value), at + unpacker.tell())
    return None


def _known(value: Any) -> CaptureHeader | Stored | None:
    return read_header(value) if isinstance(value, dict) else read_record(value)


def _unpacker() -> msgpack.Unpacker:
    # Limits on what a damaged length may make it reserve: a record is an array of six.
    return msgpack.Unpacker(
        raw=False,
        strict_map_key=False,
        unicode_errors="surrogateescape",
        max_buffer_size=4 * MAX_RECORD,
        max_array_len=65536,
        max_map_len=65536,
        max_str_len=1024 * 1024,
        max_bin_len=MAX_RECORD,
        max_ext_len=1024,
    )
