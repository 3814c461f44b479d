"""Records as the JSON objects of `tail -o jsonl` (DESIGN, Output)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvctl.events import (
    Batch,
    Event,
    Gap,
    Note,
    Record,
    Restart,
    Undecodable,
    UnknownEvent,
    WireBatch,
    event_type,
    hash_text,
)

_HASH_FIELDS = ("block_hashes", "parent_block_hash")


def record_objects(record: Record) -> Iterator[dict[str, Any]]:
    """The JSON objects of one record: one an event for a batch, one for anything else."""
    if isinstance(record, Batch):
        for event in record.events.events:
            yield event_object(record, event)
    else:
        yield mark_object(record)


def event_object(batch: Batch, event: Event) -> dict[str, Any]:
    """One event with where it came from; its fields under their wire names, hashes as text.

    A field that is absent on the wire, or null, is absent here, except the parent of a store.
    """
    return {
        **_origin(batch.wire),
        "ts": batch.events.ts,
        "recv_ts": batch.wire.recv_ns / 1e9,
        "type": event_type(event),
        **_event_fields(event),
    }


def mark_object(record: Undecodable | Gap | Restart | Note) -> dict[str, Any]:
    """A record that is no event."""
    if isinstance(record, Undecodable):
        return {
            "type": "Undecodable",
            **_origin(record.wire),
            "recv_ts": record.wire.recv_ns / 1e9,
            "error": record.error,
        }
    told = {"type": type(record).__name__, "recv_ts": record.recv_ns / 1e9}
    if isinstance(record, Note):
        return told | {"pod": record.pod, "rank": record.rank, "text": record.text}
    return told | record.to_dict()


def _origin(wire: WireBatch) -> dict[str, Any]:
    return {
        "pod": wire.pod,
        "rank": wire.rank,
        "topic": wire.topic.decode(errors="backslashreplace"),
        "seq": wire.seq,
    }


def _event_fields(event: Event) -> dict[str, Any]:
    if isinstance(event, UnknownEvent):
        return {"fields": _json_ready(event.fields)}
    fields: dict[str, Any] = {}
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if name == "unknown":
            fields |= {} if value is None else {"unknown": _json_ready(value)}
        elif name == "block_hashes":
            fields[name] = [hash_text(block_hash) for block_hash in value]
        elif name == "parent_block_hash":
            fields[name] = None if value is None else hash_text(value)
        elif value is not None:
            fields[name] = _json_ready(value)
    return fields


def _json_ready(value: Any) -> Any:
    """Anything msgpack can say, as JSON: bytes in hex, keys as text, odd floats as text."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else str(_json_ready(key)): _json_ready(item)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        if all(type(item) is int for item in value):
            return list(value)
        return [_json_ready(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if value is None or isinstance(value, (str, int, float)):
        return value
    return str(value)
