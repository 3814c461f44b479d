"""The `.kvcap` format: records to msgpack objects and back.

A file is a stream of msgpack objects: a header map, then an array per record. A batch is
`[recv_ns, pod, rank, topic, seq, payload]`, a mark `[recv_ns, pod, rank, kind, fields]`. Files may
be joined: a header may come again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeGuard

import msgpack

from kvctl import __version__
from kvctl.capture.errors import CaptureError
from kvctl.events import MAX_PAYLOAD, Batch, Gap, Note, Record, Restart, Undecodable, WireBatch
from kvctl.events.frames import MAX_SEQ

FORMAT = "kvcap"
VERSION = 1

Stored: TypeAlias = WireBatch | Gap | Restart | Note
"""What a capture holds: batches verbatim, and marks between them."""

MAX_RECORD = MAX_PAYLOAD + 1024 * 1024
"""Largest record that is read, in bytes: a larger one is damage."""

# How every record begins: an array of 6 or 5, then recv_ns, written as a uint64 whatever its size.
_UINT64 = b"\xcf"
BATCH_HEAD = b"\x96" + _UINT64
MARK_HEAD = b"\x95" + _UINT64
_HEADER_KEY = b"\xa6format"
_POD_AT = 10

BEGINNING = re.compile(
    rb"[\x95\x96]\xcf.{8}[\xa0-\xbf\xd9-\xdb]|[\x80-\x8f]" + _HEADER_KEY, re.DOTALL
)
"""Pattern of how a record (array, time, then the pod's string) and a header begin."""
LOOK_AHEAD = _POD_AT + 1
"""Bytes that the pattern takes at most."""
SIGNATURE = _HEADER_KEY + b"\xa5" + FORMAT.encode()
"""What stands in a file from its second byte on."""


@dataclass(frozen=True)
class CaptureHeader:
    """What a file says of itself. ``created`` is seconds since the epoch, None if not known.

    ``pods`` maps each pod's name to what was known of its endpoints.
    """

    created: float | None = None
    kvctl: str = ""
    version: int = VERSION
    pods: Mapping[str, Any] = field(default_factory=dict)


def new_header(pods: Mapping[str, Any] | None = None) -> CaptureHeader:
    """A header for a file that begins now."""
    return CaptureHeader(time.time(), __version__, VERSION, dict(pods or {}))


def pack_header(header: CaptureHeader) -> bytes:
    """The header as it stands in the file."""
    return _pack(
        {
            "format": FORMAT,
            "version": header.version,
            "created": header.created,
            "kvctl": header.kvctl,
            "pods": dict(header.pods),
        }
    )


def stored(record: Record | WireBatch) -> Stored:
    """What a capture keeps of a record: of a decoded batch, the message it came in."""
    return record.wire if isinstance(record, (Batch, Undecodable)) else record


def pack_record(record: Record | WireBatch) -> bytes:
    """A record as it stands in the file."""
    record = stored(record)
    rest: tuple[Any, ...]
    if isinstance(record, WireBatch):
        head = BATCH_HEAD
        rest = (record.pod, record.rank, _topic(record.topic), record.seq, record.payload)
    else:
        head = MARK_HEAD
        rest = (record.pod, record.rank, *mark_fields(record))
    # The head and the time by hand, the others without the head of their own array: msgpack
    # would write a small time in fewer bytes, and readers look for the uint64.
    return head + record.recv_ns.to_bytes(8, "big") + _pack(rest)[1:]


def mark_fields(mark: Gap | Restart | Note) -> tuple[str, dict[str, Any]]:
    """A mark's kind and its own fields."""
    if isinstance(mark, Gap):
        return "gap", {
            "from_seq": mark.from_seq,
            "to_seq": mark.to_seq,
            "recovered": mark.recovered,
            "reason": mark.reason,
        }
    if isinstance(mark, Restart):
        return "restart", {"last_seq": mark.last_seq, "reason": mark.reason}
    return "note", {"text": mark.text}


def make_mark(recv_ns: int, pod: str, rank: int | None, kind: str, fields: Any) -> Stored | None:
    """The mark of that kind, None where the fields do not make one."""
    if not isinstance(fields, dict):
        return None
    if kind == "note":
        text = fields.get("text")
        return Note(recv_ns, pod, rank, text) if isinstance(text, str) else None
    if rank is None:
        return None
    reason = fields.get("reason", "")
    if not isinstance(reason, str):
        return None
    if kind == "restart":
        last = fields.get("last_seq")
        return Restart(recv_ns, pod, rank, last, reason) if last is None or is_count(last) else None
    first, last = fields.get("from_seq"), fields.get("to_seq")
    recovered = fields.get("recovered")
    if kind == "gap" and is_count(first) and is_count(last) and isinstance(recovered, bool):
        return Gap(recv_ns, pod, rank, first, last, recovered, reason) if first <= last else None
    return None


def read_header(value: Any) -> CaptureHeader | None:
    """The header that a msgpack object is, None for any other object.

    Raises `CaptureError` for one of a newer version than this kvctl knows.
    """
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        return None
    version, created, made_by = value.get("version"), value.get("created"), value.get("kvctl")
    if not is_count(version):
        return None
    made_by = made_by if isinstance(made_by, str) else ""
    if version > VERSION:
        by = f", written by kvctl {made_by}" if made_by else ""
        needed = f"kvctl {made_by} or newer" if made_by else "a newer kvctl"
        raise CaptureError(
            f"a capture of format version {version}{by}; this kvctl reads up to {VERSION}",
            remedy=f"install {needed}",
        )
    pods = value.get("pods")
    return CaptureHeader(
        float(created) if isinstance(created, (int, float)) else None,
        made_by,
        version,
        pods if isinstance(pods, dict) and all(isinstance(name, str) for name in pods) else {},
    )


def read_record(value: Any) -> Stored | None:
    """The record that a msgpack object is, None for any other object."""
    if not isinstance(value, list):
        return None
    if len(value) == 6:
        return _read_batch(*value)
    if len(value) != 5:
        return None
    recv_ns, pod, rank, kind, fields = value
    if not is_count(recv_ns) or not isinstance(pod, str) or not (rank is None or is_count(rank)):
        return None
    return make_mark(recv_ns, pod, rank, kind, fields) if isinstance(kind, str) else None


def _read_batch(
    recv_ns: Any, pod: Any, rank: Any, topic: Any, seq: Any, payload: Any
) -> WireBatch | None:
    if isinstance(topic, str):
        topic = topic.encode("utf-8", "surrogatepass")
    if (
        is_count(recv_ns)
        and isinstance(pod, str)
        and is_count(rank)
        and isinstance(topic, bytes)
        and is_count(seq)
        and seq <= MAX_SEQ
        and type(payload) is bytes
    ):
        return WireBatch(recv_ns, pod, rank, topic, seq, payload)
    return None


def may_begin(start: bytes) -> bool:
    """Whether a record or a header could begin with these bytes, or with what there is of them.

    Nothing at all may stand at the end of a file.
    """
    if len(start) >= LOOK_AHEAD:
        return BEGINNING.match(start) is not None
    if not start or start[0] & 0xF0 == 0x80:
        return _HEADER_KEY.startswith(start[1 : 1 + len(_HEADER_KEY)])
    return BATCH_HEAD.startswith(start[:2]) or MARK_HEAD.startswith(start[:2])


def is_count(value: Any) -> TypeGuard[int]:
    """Whether it is an int that 64 bits hold, and not negative."""
    return type(value) is int and 0 <= value < 2**64


def unpacker() -> msgpack.Unpacker:
    """Unpacks what this module packs; lengths that no record has are refused.

    Strings may hold lone surrogates, which the names of files and of JSON can.
    """
    return msgpack.Unpacker(
        raw=False,
        strict_map_key=False,
        unicode_errors="surrogatepass",
        max_buffer_size=4 * MAX_RECORD,
        max_array_len=65536,
        max_map_len=65536,
        max_str_len=MAX_PAYLOAD,
        max_bin_len=MAX_PAYLOAD,
        max_ext_len=1024,
    )


def _topic(topic: bytes) -> str | bytes:
    try:
        return topic.decode()
    except UnicodeDecodeError:
        return topic


def _pack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value, use_bin_type=True, unicode_errors="surrogatepass")
    return packed
