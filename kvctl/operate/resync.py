"""Rebuilds a pod's entries from the replay buffers of its engines."""

from __future__ import annotations

import time
from dataclasses import dataclass

from kvctl.errors import KvctlError
from kvctl.events import Batch, Gap, Record
from kvctl.fleet import Pod
from kvctl.index import IndexStore
from kvctl.operate.sources import stream_sources
from kvctl.stream import StreamReader


class ResyncError(KvctlError):
    """Engines whose replay could not be had: the index was not touched."""


@dataclass(frozen=True)
class Resync:
    """What was rebuilt. ``lost`` counts batches that had left the replay buffers before."""

    pod: str
    batches: int
    lost: int


def resync(store: IndexStore, pod: Pod, *, timeout: float = 10.0) -> Resync:
    """Replace a pod's entries by what its replay buffers tell, all ranks at once.

    Nothing of the index is touched before every replay has come whole. Raises `ResyncError`.
    """
    if any(stream.replay is None for stream in pod.streams):
        raise ResyncError(
            f"pod {pod.name} has no replay endpoint to rebuild it from",
            remedy="--pod …,replay=tcp://…; its entries come back as they are stored anew",
        )
    records: list[Record] = []
    with StreamReader(list(stream_sources(pod))) as reader:
        end = time.monotonic() + timeout
        while not reader.settled() and time.monotonic() < end:
            records += reader.read(0.05)
        records += reader.read(0.0)
        for status in reader.statuses():
            if not status.connected or status.replay in ("silent", "incomplete"):
                state = status.replay if status.connected else "not connected"
                raise ResyncError(
                    f"pod {pod.name} is not rebuilt: the replay of {status.endpoint} is {state}",
                    remedy="its entries come back as they are stored anew",
                )
    for stream in pod.streams:
        store.begin_again(pod.name, stream.rank)
    for record in records:
        store.apply(record)
    store.commit()
    batches = sum(isinstance(record, Batch) for record in records)
    lost = sum(
        record.to_seq - record.from_seq + 1
        for record in records
        if isinstance(record, Gap) and not record.recovered
    )
    return Resync(pod.name, batches, lost)
