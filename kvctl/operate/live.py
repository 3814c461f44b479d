"""One pod's index, built on the spot from its streams and their replays, and kept up to date."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from kvctl.events import AllBlocksCleared, Batch, Record, Restart
from kvctl.fleet import Pod
from kvctl.index import NameIndex
from kvctl.operate.sources import stream_sources
from kvctl.stream import StreamReader, StreamStatus

_POLL_S = 0.05


@dataclass(frozen=True)
class Wipe:
    """A clear or a restart seen on the stream of a DP rank; ``seq`` None for a restart."""

    rank: int
    seq: int | None
    recv_ns: int


class LiveIndex:
    """A pod's entries as its streams tell them. Not thread-safe: `pump` is the caller's to call."""

    title = "kvctl's index"
    fed_elsewhere = False

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.index = NameIndex()
        self.wipes: list[Wipe] = []
        self._ranks = frozenset(stream.rank for stream in pod.streams)
        self._reader = StreamReader(list(stream_sources(pod)), tokens=False)

    def __enter__(self) -> LiveIndex:
        self._reader.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._reader.__exit__(*exc)

    def settle(self, timeout: float) -> list[str]:
        """Wait until every stream is connected and its replay taken in.

        Returns what is amiss after ``timeout`` seconds, a phrase per stream; empty when all is
        well.
        """
        self._pump_until(self._reader.settled, timeout)
        self.pump(0.0)
        return [text for status in self._reader.statuses() if (text := _amiss(status))]

    def pump(self, timeout: float) -> None:
        """Take in what has come; wait up to ``timeout`` seconds for the first of it."""
        records = self._reader.read(timeout)
        while records:
            for record in records:
                self.index.apply(record)
                self._watch(record)
            records = self._reader.read(0.0)

    def wait_for_wipe(self, since: int, timeout: float) -> frozenset[int]:
        """Wait until every DP rank was wiped after the first ``since`` wipes.

        Returns the ranks that did not.
        """
        self._pump_until(lambda: not self.not_wiped(since), timeout)
        return self.not_wiped(since)

    def not_wiped(self, since: int) -> frozenset[int]:
        """DP ranks without a clear or restart after the first ``since`` wipes."""
        return self._ranks - {wipe.rank for wipe in self.wipes[since:]}

    def cutoff(self) -> float | None:
        """Engine time that divides what is stored by now from what comes; None for no entry.

        It is taken from the events themselves, so that no clock has to agree with another.
        """
        newest = self.index.newest(self.pod.name)
        return None if newest is None else math.nextafter(newest, math.inf)

    def entries_before(self, cutoff: float | None) -> int:
        """How many entries were last stored before that engine time."""
        return 0 if cutoff is None else self.index.stored_before(self.pod.name, cutoff)

    def purge(self, cutoff: float | None) -> int:
        """Remove those entries; returns how many they were."""
        return 0 if cutoff is None else self.index.purge(self.pod.name, before=cutoff)

    def statuses(self) -> list[StreamStatus]:
        """How the streams are."""
        return self._reader.statuses()

    def _watch(self, record: Record) -> None:
        if isinstance(record, Restart):
            self.wipes.append(Wipe(record.rank, None, record.recv_ns))
        elif isinstance(record, Batch):
            for event in record.events.events:
                if isinstance(event, AllBlocksCleared):
                    wire = record.wire
                    self.wipes.append(Wipe(wire.rank, wire.seq, wire.recv_ns))

    def _pump_until(self, condition: Callable[[], object], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while True:
            self.pump(0.0)
            left = deadline - time.monotonic()
            if condition() or left <= 0:
                return
            self.pump(min(_POLL_S, left))


def _amiss(status: StreamStatus) -> str:
    """What is wrong with a stream, empty if nothing is."""
    where = status.endpoint
    if not status.connected:
        return f"{where} is not connected"
    if status.replay == "none":
        return f"{where} has no replay: what was stored before is not known"
    if status.replay in ("silent", "incomplete"):
        return f"the replay of {where} is {status.replay}"
    if status.missing:
        return f"{where} lost {status.missing} batches"
    return ""
