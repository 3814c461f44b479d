"""Makes a capture fit to be shown: what could tell of users' prompts is replaced by pseudonyms."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from kvctl.capture.copying import copying
from kvctl.capture.format import CaptureHeader, Stored
from kvctl.capture.pseudonyms import Pseudonyms
from kvctl.events import DecodeError, Note, WireBatch, decode_batch
from kvctl.events.wire import FIELDS

# Fields that say nothing of what was asked or by whom, and that a reader needs as they are.
_KEPT = frozenset(
    {
        "block_size",
        "lora_id",
        "medium",
        "group_idx",
        "kv_cache_spec_kind",
        "kv_cache_spec_sliding_window",
        "locality",
    }
)
_TOPIC_KIND = "kv"
# What stands behind a batch's rank, typed decoding has not looked at: it may be no UTF-8, have
# keys that cannot be keys, or be nested deeper than can be walked.
_ODD = (ValueError, TypeError, RecursionError)
# Reasons are kvctl's own phrases, without a name in them; what looks otherwise is left out.
_PHRASE = re.compile(r"[a-z0-9 ]*")
_LEFT_OUT = "redacted"


@dataclass(frozen=True)
class RedactSummary:
    """What was written, how many payloads could not be redacted, and the source's warnings."""

    records: int
    undecodable: int
    warnings: tuple[str, ...]


def redact(
    source: str | Path, target: str | Path, *, key: bytes, force: bool = False
) -> RedactSummary:
    """Write ``source`` with tokens, block hashes and names replaced, one to one.

    The form of every event stays, and so do times, seqs, sizes and media. A payload that cannot
    be decoded is left empty, and the text of notes is left out. What kvctl does not know is
    replaced too, but for the types of events. Raises `CaptureError`.
    """
    redactor = _Redactor(Pseudonyms(key))
    with copying(source, target, force=force, header=redactor.header) as (reader, writer):
        for record in reader:
            writer.write(redactor.record(record))
    return RedactSummary(writer.records, redactor.undecodable, tuple(reader.warnings))


class _Redactor:
    def __init__(self, pseudonyms: Pseudonyms) -> None:
        self.undecodable = 0
        self._names = pseudonyms

    def header(self, header: CaptureHeader) -> CaptureHeader:
        """The header without endpoints."""
        return replace(header, pods={self._names.name(pod): {} for pod in header.pods})

    def record(self, record: Stored) -> Stored:
        pod = self._names.name(record.pod)
        if isinstance(record, WireBatch):
            return WireBatch(
                record.recv_ns,
                pod,
                record.rank,
                self._topic(record.topic),
                record.seq,
                self._payload(record.payload),
            )
        if isinstance(record, Note):
            return msgspec.structs.replace(record, pod=pod, text=_LEFT_OUT)
        reason = record.reason if _PHRASE.fullmatch(record.reason) else _LEFT_OUT
        return msgspec.structs.replace(record, pod=pod, reason=reason)

    def _topic(self, topic: bytes) -> bytes:
        kind, *names = topic.decode(errors="surrogateescape").split("@")
        if kind != _TOPIC_KIND:
            kind = self._names.name(kind)
        return "@".join([kind, *map(self._names.name, names)]).encode()

    def _payload(self, payload: bytes) -> bytes:
        try:
            decode_batch(payload)
            return self._batch(payload)
        except (DecodeError, msgspec.DecodeError, *_ODD):
            self.undecodable += 1
            return b""

    def _batch(self, payload: bytes) -> bytes:
        # Untyped, so that the form on the wire stays: arrays, maps, their order, what is absent.
        ts, events, *rest = msgspec.msgpack.decode(payload)
        rank, unknown = rest[:1], rest[1:]
        redacted = [self._event(event) for event in events]
        return msgspec.msgpack.encode([ts, redacted, *rank, *map(self._anything, unknown)])

    def _event(self, event: Any) -> Any:
        if isinstance(event, dict):
            names = ("type", *FIELDS.get(event["type"], ()))
            return {
                name if name in names else self._anything(name): self._field(
                    name if name in names else "", value
                )
                for name, value in event.items()
            }
        tag, *values = event
        names = FIELDS.get(tag, ())
        return [
            tag,
            *(
                self._field(names[at] if at < len(names) else "", value)
                for at, value in enumerate(values)
            ),
        ]

    def _field(self, name: str, value: Any) -> Any:
        if value is None or name == "type" or name in _KEPT:
            return value
        if name == "block_hashes":
            return [self._names.block_hash(each) for each in value]
        if name == "parent_block_hash":
            return self._names.block_hash(value)
        if name == "extra_keys":
            return [None if keys is None else [self._extra(key) for key in keys] for keys in value]
        return self._anything(value)

    def _extra(self, key: Any) -> Any:
        """An extra key; numbers in it are offsets (of an image in the prompt) and stay."""
        if isinstance(key, list):
            return [self._extra(part) for part in key]
        return key if isinstance(key, int) else self._anything(key)

    def _anything(self, value: Any) -> Any:
        """Token ids and whatever kvctl does not know: ints as tokens, text as names.

        Numbers that are no ints, and times, stay.
        """
        if value is None or isinstance(value, (bool, float, datetime.datetime)):
            return value
        if isinstance(value, int):
            return self._names.token(value)
        if isinstance(value, str):
            return self._names.name(value)
        if isinstance(value, bytes):
            return self._names.blob(value)
        if isinstance(value, (list, tuple)):  # a tuple where an array is the key of a map
            return type(value)(map(self._anything, value))
        if isinstance(value, dict):
            return {self._anything(name): self._anything(each) for name, each in value.items()}
        assert isinstance(value, msgspec.msgpack.Ext)
        return msgspec.msgpack.Ext(value.code, self._names.blob(bytes(value.data)))
