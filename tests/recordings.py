"""The recordings under tests/data, read by hand: independent of kvctl's own readers."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import msgpack

from kvctl.events import WireBatch

DATA = Path(__file__).parent / "data"
CAPTURES = DATA / "captures"
METRICS = DATA / "metrics"


def lines(name: str) -> list[dict[str, Any]]:
    """The JSON objects of a recording, in order of receipt."""
    text = (CAPTURES / f"{name}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def frames(line: dict[str, Any]) -> list[bytes]:
    return [base64.b64decode(frame) for frame in line["frames"]]


def wire_batches(name: str) -> list[WireBatch]:
    """Every batch of a recording; the rank is the payload's."""
    batches = []
    for line in lines(name):
        topic, seq, payload = frames(line)[-3:]
        if payload:
            rank = msgpack.unpackb(payload)[2]
            received = round(line["recv_ts"] * 1e9)
            batches.append(
                WireBatch(received, line["pod"], rank, topic, int.from_bytes(seq, "big"), payload)
            )
    return batches
