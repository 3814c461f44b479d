"""Makes a capture fit to be shown: what could tell of users' prompts is replaced by pseudonyms."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kvctl.capture.format import Stored
from kvctl.capture.pseudonyms import Pseudonyms
from kvctl.capture.reader import open_capture
from kvctl.capture.writer import CaptureWriter
from kvctl.events import DecodeError, Gap, Note, Restart, WireBatch, decode_batch
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
    be decoded is left empty. Raises `CaptureError`.
    """
    redactor = _Redactor(Pseudonyms(key))
    with open_capture(source) as reader, CaptureWriter(target, force=force) as writer:
        for record in reader:
            writer.write(redactor.record(record))
        return RedactSummary(writer.records, redactor.undecodable, tuple(reader.warnings))


class _Redactor:
    def __init__(self, pseudonyms: Pseudonyms) -> None:
        self.undecodable = 0
        self._names = pseudonyms

    def record(self, record: Stored) -> Stored:
        pod = self._names.name(record.pod)
        if isinstance(record, WireBatch):
            topic, payload = self._topic(record.topic), self._payload(record.payload)
            return WireBatch(record.recv_ns, pod, record.rank, topic, record.seq, payload)
        if isinstance(record, Note):
            return Note(record.recv_ns, pod, record.rank, "redacted")
        if isinstance(record, Gap):
            return msgspec.structs.replace(record, pod=pod)
        assert isinstance(record, Restart)
        return msgspec.structs.replace(record, pod=pod)

    def _topic(self, topic: bytes) -> bytes:
        parts = topic.decode(errors="backslashreplace").split("@")
        return "@".join(
            part if part in ("", _TOPIC_KIND) else self._names.name(part) for part in parts
        ).encode()

    def _payload(self, payload: bytes) -> bytes:
        try:
            decode_batch(payload)
        except DecodeError:
            self.undecodable += 1
            return b""
        # Untyped, so that the form on the wire stays: arrays, maps, their order, what is absent.
        ts, events, *rest = msgspec.msgpack.decode(payload)
        return msgspec.msgpack.encode([ts, [self._event(event) for event in events], *rest])

    def _event(self, event: Any) -> Any:
        if isinstance(event, dict):
            tag = event["type"]
            return {
                self._key(name, tag): value
                if name == "type"
                else self._field(name if name in FIELDS.get(tag, ()) else "", value)
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

    def _key(self, name: Any, tag: str) -> Any:
        known = name == "type" or name in FIELDS.get(tag, ())
        return name if known or not isinstance(name, str) else self._names.name(name)

    def _field(self, name: str, value: Any) -> Any:
        if value is None or name in _KEPT:
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
        """Token ids and whatever kvctl does not know: numbers as tokens, text as names."""
        if isinstance(value, bool) or value is None or isinstance(value, float):
            return value
        if isinstance(value, int):
            return self._names.token(value)
        if isinstance(value, str):
            return self._names.name(value)
        if isinstance(value, bytes):
            return self._names.blob(value)
        if isinstance(value, (list, tuple)):
            return [self._anything(each) for each in value]
        if isinstance(value, dict):
            return {self._anything(name): self._anything(each) for name, each in value.items()}
        return None
