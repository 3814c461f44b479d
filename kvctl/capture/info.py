"""What a capture holds, in numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvctl.capture.format import CaptureHeader
from kvctl.capture.reader import open_capture
from kvctl.events import Gap, Note, Restart, Tally, WireBatch, decode_record


@dataclass
class StreamInfo:
    """One (pod, DP rank): its batches and their seqs, in order of the file."""

    pod: str
    rank: int
    batches: int = 0
    topics: set[str] = field(default_factory=set)
    first_seq: int | None = None
    last_seq: int | None = None
    seq_jumps: int = 0
    """Seqs passed over without a mark that tells of them."""
    seq_returns: int = 0
    """Times the seq went back without a mark of a restart."""

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
    streams: dict[tuple[str, int], StreamInfo] = {}
    tally = Tally()
    notes = 0
    first: int | None = None
    last: int | None = None
    with open_capture(source) as reader:
        for record in reader:
            if isinstance(record, WireBatch):
                stream = streams.setdefault(
                    (record.pod, record.rank), StreamInfo(record.pod, record.rank)
                )
                _count_batch(stream, record)
                tally.add(decode_record(record))
                first = record.recv_ns if first is None else min(first, record.recv_ns)
                last = record.recv_ns if last is None else max(last, record.recv_ns)
            elif isinstance(record, Note):
                notes += 1
            else:
                tally.add(record)
                _mark(streams, record)
        return CaptureInfo(
            reader.source,
            reader.header,
            reader.size,
            None if first is None else first / 1e9,
            None if last is None else last / 1e9,
            tuple(streams[key] for key in sorted(streams)),
            tally,
            notes,
            tuple(reader.warnings),
        )


def _count_batch(stream: StreamInfo, wire: WireBatch) -> None:
    stream.batches += 1
    stream.topics.add(wire.topic.decode(errors="backslashreplace"))
    if stream.first_seq is None:
        stream.first_seq = wire.seq
    if stream.last_seq is not None:
        if wire.seq <= stream.last_seq:
            stream.seq_returns += 1
        else:
            stream.seq_jumps += wire.seq - stream.last_seq - 1
    stream.last_seq = wire.seq


def _mark(streams: dict[tuple[str, int], StreamInfo], mark: Gap | Restart) -> None:
    """What a mark tells of is no jump or return found out besides."""
    stream = streams.get((mark.pod, mark.rank))
    if stream is None:
        return
    if isinstance(mark, Restart):
        stream.last_seq = None
    elif not mark.recovered and stream.last_seq is not None:
        stream.last_seq = max(stream.last_seq, mark.to_seq)
