"""Where in a stream a reader stands."""

from __future__ import annotations

from msgspec import Struct
from xxhash import xxh3_64_intdigest

from kvctl.events.records import Batch, Undecodable


class Position(Struct, frozen=True, gc=False):
    """A batch of a stream, to go on behind, and to tell whether it is still the same life.

    ``ts`` is the engine's clock, None for an undecodable batch; ``digest`` the payload's xxh3.
    """

    seq: int
    ts: float | None
    digest: int


def position_of(message: Batch | Undecodable) -> Position:
    """The position of a batch."""
    ts = message.events.ts if isinstance(message, Batch) else None
    return Position(message.wire.seq, ts, xxh3_64_intdigest(message.wire.payload))
