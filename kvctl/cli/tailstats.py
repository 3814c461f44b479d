"""Counts of a running `kvctl tail`: per second for --stats, in all for the summary."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kvctl.events import Batch, Record, Tally, Undecodable, stream_of
from kvctl.text import plural


@dataclass(frozen=True)
class StatsEntry:
    """What one pod's streams brought since the entry before, and the gaps since the start."""

    pod: str
    seconds: float
    batches: int
    events: int
    blocks_stored: int
    blocks_removed: int
    clears: int
    missing: int
    restarts: int
    last_seq: int | None

    def line(self) -> str:
        """For people."""
        words = [
            f"{self.pod:<12}",
            f"{self.batches / self.seconds:8.1f} batches/s",
            f"{self.events / self.seconds:8.1f} events/s",
            f"+{self.blocks_stored} -{self.blocks_removed} blocks",
        ]
        if self.clears:
            words.append(plural(self.clears, "clear").upper())
        if self.missing:
            words.append(f"{self.missing} batches LOST so far")
        if self.restarts:
            words.append(f"{plural(self.restarts, 'restart')} so far")
        return "  ".join(words)

    def to_dict(self) -> dict[str, Any]:
        """A `Stats` object of `tail --stats -o jsonl`."""
        return {
            "type": "Stats",
            "pod": self.pod,
            "seconds": round(self.seconds, 3),
            "batches": self.batches,
            "events": self.events,
            "blocks_stored": self.blocks_stored,
            "blocks_removed": self.blocks_removed,
            "clears": self.clears,
            "missing": self.missing,
            "restarts": self.restarts,
            "last_seq": self.last_seq,
        }


@dataclass
class _PodStats:
    total: Tally = field(default_factory=Tally)
    recent: Tally = field(default_factory=Tally)
    first_seq: int | None = None
    last_seq: int | None = None


class TailStats:
    """Tallies per pod. ``clock`` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ticked = clock()
        self._pods: dict[str, _PodStats] = {}

    def add(self, record: Record) -> None:
        """Count one record."""
        pod = self._pods.setdefault(stream_of(record)[0], _PodStats())
        pod.total.add(record)
        pod.recent.add(record)
        if isinstance(record, (Batch, Undecodable)):
            pod.last_seq = record.wire.seq
            if pod.first_seq is None:
                pod.first_seq = pod.last_seq

    def tick(self) -> list[StatsEntry]:
        """An entry per pod for the time since the last tick."""
        now = self._clock()
        seconds, self._ticked = max(now - self._ticked, 1e-6), now
        entries = []
        for name, pod in sorted(self._pods.items()):
            recent, pod.recent = pod.recent, Tally()
            entries.append(
                StatsEntry(
                    name,
                    seconds,
                    recent.batches,
                    sum(recent.events.values()),
                    recent.blocks_stored,
                    recent.blocks_removed,
                    recent.clears,
                    pod.total.missing,
                    len(pod.total.restarts),
                    pod.last_seq,
                )
            )
        return entries

    def summary(self) -> list[str]:
        """A line per pod for the whole run."""
        return [_summary(name, pod) for name, pod in sorted(self._pods.items())]


def _summary(name: str, pod: _PodStats) -> str:
    total = pod.total
    seqs = "" if pod.first_seq is None else f" (seq {pod.first_seq} to {pod.last_seq})"
    words = [
        f"{name}: {plural(total.batches, 'batch')}{seqs}",
        plural(sum(total.events.values()), "event"),
        f"{total.blocks_stored} blocks stored",
        f"{total.blocks_removed} removed",
        plural(total.clears, "clear"),
    ]
    lost = [gap for gap in total.gaps if not gap.recovered]
    recovered = len(total.gaps) - len(lost)
    if lost:
        words.append(f"{plural(len(lost), 'gap')} ({plural(total.missing, 'batch')} lost)")
    if recovered:
        words.append(f"{plural(recovered, 'gap')} recovered")
    if total.restarts:
        words.append(plural(len(total.restarts), "restart"))
    if total.undecodable:
        words.append(f"{total.undecodable} undecodable")
    return ", ".join(words)
