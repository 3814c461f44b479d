"""Order for batches that were recorded: captures in, records in stream order out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvctl.events import Gap, Note, Record, Restart, WireBatch, decode_record
from kvctl.stream.order import Sequencer

_GRACE_BATCHES = 64
"""How many batches of a stream may come before a missing one still counts as reordered."""


def order_capture(records: Iterable[WireBatch | Gap | Restart | Note]) -> Iterator[Record]:
    """Decode what a capture holds and put each stream's batches in order.

    A capture of kvctl's own is in order already and has its gaps and restarts marked; in one of
    other make they are found here.
    """
    streams: dict[tuple[str, int], Sequencer] = {}
    counts: dict[tuple[str, int], int] = {}

    def sequencer(pod: str, rank: int) -> Sequencer:
        found = streams.get((pod, rank))
        if found is None:
            found = streams[pod, rank] = Sequencer(pod, rank, grace=_GRACE_BATCHES)
            counts[pod, rank] = 0
        return found

    for record in records:
        if isinstance(record, WireBatch):
            key = (record.pod, record.rank)
            stream = sequencer(*key)
            counts[key] += 1
            yield from stream.feed(decode_record(record), counts[key])
            yield from stream.tick(counts[key])
        elif isinstance(record, Gap):
            yield from sequencer(record.pod, record.rank).mark_gap(record)
        elif isinstance(record, Restart):
            yield from sequencer(record.pod, record.rank).mark_restart(record)
        else:
            yield record
    for stream in streams.values():
        yield from stream.flush()
