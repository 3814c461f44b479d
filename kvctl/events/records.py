"""What flows through kvctl: batches in stream order, and the marks between them.

A source (live streams, a capture) yields records; the index, the capture writer and the printers
take them. A stream is one (pod, DP rank).
"""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct

from kvctl.events.decode import decode_batch
from kvctl.events.errors import DecodeError
from kvctl.events.model import EventBatch


class WireBatch(Struct, frozen=True, gc=False):
    """One published message as it came: bytes, and where and when we got them.

    ``recv_ns`` is our clock, nanoseconds since the epoch.
    """

    recv_ns: int
    pod: str
    rank: int
    topic: bytes
    seq: int
    payload: bytes


class Batch(Struct, frozen=True, gc=False):
    """A message with its events."""

    wire: WireBatch
    events: EventBatch


class Undecodable(Struct, frozen=True, gc=False):
    """A message whose payload is no batch of KV events; its seq counts all the same."""

    wire: WireBatch
    error: str


class Gap(Struct, frozen=True, gc=False):
    """Seqs ``from_seq`` to ``to_seq`` (both inclusive) did not arrive in their turn.

    ``recovered`` says whether the replay brought them after all. ``reason`` tells a cold start
    (we came when the stream had long begun) from a loss.
    """

    recv_ns: int
    pod: str
    rank: int
    from_seq: int
    to_seq: int
    recovered: bool
    reason: str = ""

    @property
    def missing(self) -> int:
        """How many batches the gap spans."""
        return self.to_seq - self.from_seq + 1

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, without the time of receipt."""
        return {
            "pod": self.pod,
            "rank": self.rank,
            "from_seq": self.from_seq,
            "to_seq": self.to_seq,
            "recovered": self.recovered,
            "reason": self.reason,
        }


class Restart(Struct, frozen=True, gc=False):
    """The stream began a new life: what the index holds for it is void.

    ``last_seq`` is the last seq of the old life that we saw, None if none.
    """

    recv_ns: int
    pod: str
    rank: int
    last_seq: int | None
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, without the time of receipt."""
        return {
            "pod": self.pod,
            "rank": self.rank,
            "last_seq": self.last_seq,
            "reason": self.reason,
        }


class Note(Struct, frozen=True, gc=False):
    """Something worth telling that changes no entry: a lost connection, a malformed message.

    ``rank`` is None where the note concerns the pod as a whole.
    """

    recv_ns: int
    pod: str
    rank: int | None
    text: str


Record: TypeAlias = Batch | Undecodable | Gap | Restart | Note


def decode_record(
    wire: WireBatch, *, rank_from_payload: bool = False, tokens: bool = True
) -> Batch | Undecodable:
    """Decode a message into a `Batch`, or an `Undecodable` that names the fault.

    With ``rank_from_payload`` the batch's own `data_parallel_rank`, where it has one, decides
    which stream it belongs to: ranks may share a port. Without ``tokens`` the token ids are left
    away (`decode_batch`).
    """
    try:
        events = decode_batch(wire.payload, tokens=tokens)
    except DecodeError as error:
        return Undecodable(wire, error.detail)
    rank = events.data_parallel_rank
    if rank_from_payload and rank is not None and rank != wire.rank:
        wire = WireBatch(wire.recv_ns, wire.pod, rank, wire.topic, wire.seq, wire.payload)
    return Batch(wire, events)


def stream_of(record: Record) -> tuple[str, int | None]:
    """The (pod, DP rank) a record belongs to; no rank for a note about the whole pod."""
    if isinstance(record, (Batch, Undecodable)):
        return record.wire.pod, record.wire.rank
    return record.pod, record.rank
