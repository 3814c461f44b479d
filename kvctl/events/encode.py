"""`EventBatch` -> bytes, as a chosen vLLM version writes them."""

from __future__ import annotations

from typing import Any

import msgspec

from kvctl.events.model import Event, EventBatch, UnknownEvent, event_type
from kvctl.events.wire import ALWAYS_SENT, FORMS, WireForm

_encode = msgspec.msgpack.Encoder().encode


def encode_batch(batch: EventBatch, form: WireForm = FORMS[-1]) -> bytes:
    """The payload that a vLLM of ``form`` publishes for ``batch``.

    What the form has no field for is left out, as an engine of that age would not know it.
    """
    wire: list[Any] = [batch.ts, [_plain(event, form) for event in batch.events]]
    if form.rank and batch.data_parallel_rank is not None:
        wire.append(batch.data_parallel_rank)
    return _encode(wire)


def _plain(event: Event, form: WireForm) -> list[Any] | dict[str, Any]:
    tag = event_type(event)
    if isinstance(event, UnknownEvent):
        names, values = tuple(event.fields), tuple(event.fields.values())
    else:
        names = form.fields(tag)
        values = tuple(getattr(event, name) for name in names)
    if not form.maps:
        return [tag, *values]
    fields = zip(names, values, strict=True)
    return {"type": tag} | {n: v for n, v in fields if v is not None or n in ALWAYS_SENT}
