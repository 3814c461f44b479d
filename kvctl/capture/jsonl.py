"""Captures as JSON lines: the form other tools record in, with base64 frames.

`{"recv_ts": seconds, "pod": name, "frames": [base64, ...]}`, three frames of a published message
or four of a replay's answer. kvctl adds `recv_ns` and `rank`, so that nothing is lost, and writes
marks as `{"recv_ts", "recv_ns", "pod", "rank", "marker": kind, ...}`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from kvctl.capture.format import MAX_RECORD, Stored, is_count, make_mark, mark_fields, stored
from kvctl.events import (
    DecodeError,
    Record,
    WireBatch,
    decode_record,
    encode_seq,
    parse_replay,
)

_LONGEST_LINE = 2 * MAX_RECORD
# A file that begins with so many lines that are none of ours is something else.
_BAD_LINES_AT_START = 100


class BadLineError(ValueError):
    """A line that is no record; its text says why."""


def pack_line(record: Record | WireBatch) -> bytes:
    """A record as a line."""
    record = stored(record)
    common = {
        "recv_ts": record.recv_ns / 1e9,
        "recv_ns": record.recv_ns,
        "pod": record.pod,
        "rank": record.rank,
    }
    if isinstance(record, WireBatch):
        frames = (record.topic, encode_seq(record.seq), record.payload)
        more: dict[str, Any] = {"frames": [base64.b64encode(frame).decode() for frame in frames]}
    else:
        kind, fields = mark_fields(record)
        more = {"marker": kind, **fields}
    return json.dumps(common | more, separators=(",", ":")).encode() + b"\n"


def read_lines(file: BinaryIO, warn: Callable[[str], None]) -> Iterator[Stored]:
    """The records of a file of lines; a bad line is warned of and skipped.

    Ends early where the first hundred lines are all bad: then this is no capture.
    """
    number = bad = 0
    known = False
    while line := file.readline(_LONGEST_LINE):
        number += 1
        try:
            record = parse_line(line)
        except BadLineError as error:
            reason = str(error)
            if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
                reason = "longer than any record"
                _skip_line(file)
            elif not line.endswith(b"\n"):
                reason = f"{reason}, cut off with {len(line)} bytes left"
            warn(f"line {number}: {reason}")
            bad += 1
            if not known and bad == _BAD_LINES_AT_START:
                return
            continue
        if record is not None:
            known = True
            yield record


def parse_line(line: bytes) -> Stored | None:
    """The record of one line, None for a blank one and for a replay's end marker.

    Raises `BadLineError`.
    """
    if not line.strip():
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise BadLineError("not JSON") from None
    if not isinstance(value, dict):
        raise BadLineError("not a JSON object")
    pod, rank = value.get("pod"), value.get("rank")
    recv_ns = _recv_ns(value)
    if not isinstance(pod, str) or recv_ns is None or not (rank is None or is_count(rank)):
        raise BadLineError("pod, rank or time of receipt is missing or odd")
    if "marker" in value:
        kind = value["marker"]
        mark = make_mark(recv_ns, pod, rank, kind, value) if isinstance(kind, str) else None
        if mark is None:
            raise BadLineError("not a mark that kvctl knows")
        return mark
    try:
        parsed = parse_replay([base64.b64decode(f, validate=True) for f in value["frames"]])
    except (KeyError, TypeError, ValueError, binascii.Error):
        raise BadLineError("frames are missing or no base64") from None
    except DecodeError as error:
        raise BadLineError(error.detail) from None
    if parsed is None:
        return None
    topic, seq, payload = parsed
    wire = WireBatch(recv_ns, pod, rank or 0, topic, seq, payload)
    return wire if rank is not None else decode_record(wire, rank_from_payload=True).wire


def _skip_line(file: BinaryIO) -> None:
    while (part := file.readline(_LONGEST_LINE)) and not part.endswith(b"\n"):
        pass


def _recv_ns(value: dict[str, Any]) -> int | None:
    exact = value.get("recv_ns")
    if is_count(exact):
        return exact
    seconds = value.get("recv_ts")
    if isinstance(seconds, (int, float)) and 0 <= seconds < 1e10:
        return round(seconds * 1e9)
    return None
