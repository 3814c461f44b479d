"""What a reader gives, read until a condition holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from hostile import Hostile

from kvctl.events import Batch, Gap, Note, Record, Undecodable
from kvctl.stream import StreamReader, StreamSource

PATIENCE = 60.0


class Collected:
    """A reader and all it gave so far."""

    def __init__(self, reader: StreamReader) -> None:
        self.reader = reader
        self.records: list[Record] = []

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, self.records[-5:]
            self.records += self.reader.read(0.05)

    def rest(self) -> None:
        """What can still be read after `stop`."""
        while records := self.reader.read(0):
            self.records += records

    def seqs(self, pod: str = "pod-a", rank: int = 0) -> list[int]:
        return [
            record.wire.seq
            for record in self.records
            if isinstance(record, (Batch, Undecodable))
            and (record.wire.pod, record.wire.rank) == (pod, rank)
        ]

    def of(self, kind: type) -> list[Any]:
        return [record for record in self.records if isinstance(record, kind)]

    def gaps(self) -> list[tuple[int, int, bool]]:
        return [(gap.from_seq, gap.to_seq, gap.recovered) for gap in self.of(Gap)]

    def lost(self) -> list[int]:
        """Every seq that an unrecovered gap names."""
        return [
            seq
            for first, last, recovered in self.gaps()
            if not recovered
            for seq in range(first, last + 1)
        ]

    @property
    def notes(self) -> str:
        return "\n".join(note.text for note in self.of(Note))


def source(hostile: Hostile, **fields: Any) -> StreamSource:
    given = {"pod": "pod-a", "events": hostile.events, "replay": hostile.replay} | fields
    return StreamSource(**given)


def read(stack: ExitStack, *sources: StreamSource, **options: Any) -> Collected:
    return Collected(stack.enter_context(StreamReader(sources, **options)))
