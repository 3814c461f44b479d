"""What a capture holds, in numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvctl.capture.format import CaptureHeader
from kvctl.capture.reader import open_capture
from kvctl.events import Gap, Note, Restart, Tally, WireBatch, decode_record


@dataclass(frozen=True)
class StreamInfo:
    """One (pod, DP rank): its batches and their seqs, in the order of the file.

    ``seq_jumps`` counts seqs passed over without a mark that tells of them, ``seq_returns`` the
    times the seq went back without a mark of a restart: the gaps and restarts of a recording
    that has no marks.
    """

    pod: str
    rank: int
    batches: int
    topics: frozenset[str]
    first_seq: int
    last_seq: int
    seq_jumps: int
    seq_returns: int

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "pod": self.pod,
            "rank": self.rank,
            "batches": self.batches,
            "topics": sorted(self.topics),
            "first_seq": self.first_seq,
            "last_seq": self.last_seq,
            "seq_jumps": self.seq_jumps,
            "seq_returns": self.seq_returns,
        }


@dataclass(frozen=True)
class CaptureInfo:
    """The whole file. Times of receipt are seconds since the epoch, size is in bytes."""

    source: str
    header: CaptureHeader
    size: int
    first_ts: float | None
    last_ts: float | None
    streams: tuple[StreamInfo, ...]
    tally: Tally
    notes: int
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "source": self.source,
            "size": self.size,
            "created": self.header.created,
            "kvctl": self.header.kvctl,
            "first_ts": self.first_ts,
            "last_ts": self.last_ts,
            "batches": self.tally.batches,
            "events": self.tally.events,
            "blocks_stored": self.tally.blocks_stored,
            "undecodable": self.tally.undecodable,
            "streams": [stream.to_dict() for stream in self.streams],
            "gaps": [gap.to_dict() for gap in self.tally.gaps],
            "restarts": [restart.to_dict() for restart in self.tally.restarts],
            "notes": self.notes,
            "warnings": list(self.warnings),
        }


def capture_info(source: str | Path) -> CaptureInfo:
    """Read a capture to its end and count. Raises `CaptureError` for what is none."""
    streams: dict[tuple[str, int], _Stream] = {}
    tally = Tally()
    notes = 0
    first = last = None
    with open_capture(source) as reader:
        for record in reader:
            if isinstance(record, Note):
                notes += 1
                continue
            key = record.pod, record.rank
            if isinstance(record, WireBatch):
                streams.setdefault(key, _Stream()).add(record)
                tally.add(decode_record(record))
                first = record.recv_ns if first is None else min(first, record.recv_ns)
                last = record.recv_ns if last is None else max(last, record.recv_ns)
            else:
                tally.add(record)
                if key in streams:
                    streams[key].mark(record)
        return CaptureInfo(
            reader.source,
            reader.header,
            reader.size,
            None if first is None else first / 1e9,
            None if last is None else last / 1e9,
            tuple(streams[key].info(*key) for key in sorted(streams)),
            tally,
            notes,
            tuple(reader.warnings),
        )


@dataclass(slots=True)
class _Stream:
    """Counts of one stream while it is read; ``reached`` is the seq up to which all is told."""

    batches: int = 0
    topics: set[str] = field(default_factory=set)
    first_seq: int = 0
    last_seq: int = 0
    reached: int | None = None
    jumps: int = 0
    returns: int = 0

    def add(self, wire: WireBatch) -> None:
        if not self.batches:
            self.first_seq = wire.seq
        self.batches += 1
        self.topics.add(wire.topic.decode(errors="backslashreplace"))
        if self.reached is not None:
            if wire.seq <= self.reached:
                self.returns += 1
            else:
                self.jumps += wire.seq - self.reached - 1
        self.last_seq = self.reached = wire.seq

    def mark(self, mark: Gap | Restart) -> None:
        """What a mark tells of is no jump or return found out besides."""
        if isinstance(mark, Restart):
            self.reached = None
        elif not mark.recovered and self.reached is not None:
            self.reached = max(self.reached, mark.to_seq)

    def info(self, pod: str, rank: int) -> StreamInfo:
        return StreamInfo(
            pod,
            rank,
            self.batches,
            frozenset(self.topics),
            self.first_seq,
            self.last_seq,
            self.jumps,
            self.returns,
        )
