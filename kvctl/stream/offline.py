"""Order for batches that were recorded: captures in, records in stream order out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvctl.events import Gap, Note, Record, Restart, WireBatch, decode_record
from kvctl.stream.order import Sequencer

GRACE_BATCHES = 64
"""How many batches of a stream may come before a missing one no longer counts as reordered."""


def order_capture(records: Iterable[WireBatch | Gap | Restart | Note]) -> Iterator[Record]:
    """Decode what a capture holds and put each stream's batches in order.

    A capture of kvctl's own is in order already and has its gaps and restarts marked; in one of
    other make they are found here. A stream's rank is what the reader of the capture says it is.
    """
    streams: dict[tuple[str, int], Sequencer] = {}

    for record in records:
        if isinstance(record, Note):
            yield record
            continue
        stream = streams.get((record.pod, record.rank))
        if stream is None:
            stream = Sequencer(record.pod, record.rank, grace=GRACE_BATCHES)
            streams[record.pod, record.rank] = stream
        if isinstance(record, WireBatch):
            yield from stream.feed(decode_record(record), stream.received) or (
                stream.tick(stream.received)  # it waits, or was dropped
            )
        elif isinstance(record, Gap):
            yield from stream.mark_gap(record)
        else:
            yield from stream.mark_restart(record)
    for stream in streams.values():
        yield from stream.flush()
