"""Bytes of a `.kvcap` to records, past damage where the next record can be found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgpack

from kvctl.capture.format import (
    BEGINNING,
    LOOK_AHEAD,
    MAX_RECORD,
    CaptureHeader,
    Stored,
    may_begin,
    read_header,
    read_record,
    unpacker,
)
from kvctl.capture.window import Window
from kvctl.events import DecodeError, WireBatch, decode_batch

_CHUNK = 256 * 1024
# Most of what looks like a record in the middle of damage is none, and a short look tells.
_FIRST_LOOK = 1024
_FAULTS = (msgpack.UnpackException, ValueError, TypeError, RecursionError)


class _Found(NamedTuple):
    """An object of the file: ``record`` None if it is none of ours, ``end`` where it ends."""

    record: CaptureHeader | Stored | None
    end: int


class Frames:
    """Reads records off ``read`` (n -> bytes, empty at the end).

    ``warn`` hears of damage. ``position`` is the byte up to which all is dealt with; ``cut``,
    once at the end, how many bytes stand there that begin a record and are no whole one.
    """

    def __init__(self, read: Callable[[int], bytes], warn: Callable[[str], None]) -> None:
        self._window = Window(read)
        self._warn = warn
        self._lost = False
        self.position = 0
        self.cut = 0

    def __iter__(self) -> Iterator[CaptureHeader | Stored]:
        while self._window.reaches(self.position) and not self._lost:
            yield from self._whole_records()
            if self._window.reaches(self.position):
                yield from self._past_damage()

    def _whole_records(self) -> Iterator[CaptureHeader | Stored]:
        """The records up to the first that is damaged, cut, or followed by damage."""
        begin = fed = self.position
        objects = unpacker()
        while True:
            try:
                value = objects.unpack()
            except msgpack.OutOfData:
                self._window.forget(self.position)
                piece = self._window.some(fed, _CHUNK)
                if not piece or fed - self.position > MAX_RECORD:
                    return
                objects.feed(piece)
                fed += len(piece)
                continue
            except _FAULTS:
                return
            end = begin + objects.tell()
            record = _known(value)
            if record is None or end - self.position > MAX_RECORD or not self._may_begin(end):
                return
            self.position = end
            yield record

    def _past_damage(self) -> Iterator[CaptureHeader | Stored]:
        """Give out the record in front of the damage, if that one is whole, and go behind it."""
        found = self._parse(self.position)
        after = None
        if found is not None and found.record is not None:
            # Its own length may be what is damaged: then it swallowed records that are whole,
            # and their bytes are at its payload's end, where a batch has nothing.
            if not _decodes(found.record):
                after = self._find(self.position + 1, found.end)
            if after is None:
                self.position = found.end
                yield found.record
        if after is None:
            after = self._find(self.position + 1)
        if after is not None:
            self._warn(f"damage at byte {self.position}: {after - self.position} bytes skipped")
            self.position = after
            return
        self._lost = True
        left = self._window.end - self.position
        if found is None:
            self.cut = left
        else:
            self._warn(f"damaged at byte {self.position}: {left} bytes left unread")

    def _find(self, start: int, stop: int | None = None) -> int | None:
        """Where the next whole record begins.

        Before a ``stop`` we are inside of what may be a good record: there it takes another
        record, or the end of the file, behind the one that is found.
        """
        while True:
            at = self._window.search(BEGINNING, LOOK_AHEAD, start, stop)
            if at is None:
                return None
            found = self._parse(at)
            start = at + 1
            if found is None or found.record is None:
                continue
            if stop is None or self._may_begin(found.end):
                return at

    def _parse(self, at: int) -> _Found | None:
        """The object that begins there, None where the file ends before it does."""
        objects = unpacker()
        fed, most = at, _FIRST_LOOK
        while piece := self._window.some(fed, most):
            objects.feed(piece)
            fed += len(piece)
            most = min(2 * most, _CHUNK)
            try:
                value = objects.unpack()
            except msgpack.OutOfData:
                if fed - at > MAX_RECORD:
                    return _Found(None, at)
                continue
            except _FAULTS:
                return _Found(None, at)
            length = objects.tell()
            return _Found(_known(value) if length <= MAX_RECORD else None, at + length)
        return None

    def _may_begin(self, place: int) -> bool:
        begins = self._window.matches(BEGINNING, LOOK_AHEAD, place)
        return may_begin(self._window.all(place, LOOK_AHEAD)) if begins is None else begins


def _known(value: Any) -> CaptureHeader | Stored | None:
    return read_header(value) if isinstance(value, dict) else read_record(value)


def _decodes(record: CaptureHeader | Stored) -> bool:
    if not isinstance(record, WireBatch):
        return False
    try:
        decode_batch(record.payload)
    except DecodeError:
        return False
    return True
