"""The run of `kvctl tail`: streams in; lines, a capture and a summary out."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kvctl.cli.output import say, stdout_console, warn
from kvctl.cli.record_json import event_object, mark_object
from kvctl.cli.record_lines import LineWriter
from kvctl.cli.stdio import check_reader
from kvctl.cli.tailstats import TailStats
from kvctl.errors import KvctlError
from kvctl.events import Batch, Event, EventFilter, Note, Record, Restart
from kvctl.fleet import FleetFollower, Pod
from kvctl.operate.indexes import IndexOptions, open_store, shown_url
from kvctl.operate.sources import stream_sources
from kvctl.stream import StreamReader
from kvctl.text import plural

if TYPE_CHECKING:
    from kvctl.capture import CaptureWriter
    from kvctl.index import IndexStore

INTERRUPTED = 130
_POLL_S = 0.25
_REJOIN_S = 1.0
_REMEDY = (
    "is the engine up, the port its events', and does its --kv-events-config say "
    '"enable_kv_cache_events": true? --follow keeps trying'
)


class NothingConnectedError(KvctlError):
    """None of the endpoints answered."""


@dataclass(frozen=True)
class TailOptions:
    """What `kvctl tail` was asked for. Times in seconds."""

    events: EventFilter = field(default_factory=EventFilter)
    lines: bool = False
    stats: bool = False
    count: int | None = None
    timeout: float | None = None
    connect_timeout: float = 10.0
    follow: bool = False
    replay: bool = True
    since_seq: int = 0
    capture: Path | None = None
    force: bool = False
    append: bool = False
    index: str | None = None
    own_keys: bool = False


class Tailing:
    """One run; `run` returns the exit code.

    ``fleet`` are pods that come and go, besides the ``pods`` that stay. Its watch is closed at the
    end of the run.
    """

    def __init__(
        self, pods: Sequence[Pod], options: TailOptions, fleet: FleetFollower | None = None
    ) -> None:
        self._pods = [*pods, *(fleet.pods if fleet is not None else ())]
        self._options = options
        self._fleet = fleet
        self._fleet_fault = ""
        self._names_read = {pod.name for pod in self._pods}
        self._joining: list[tuple[float, Pod]] = []
        self._check_at: float | None = None
        self._left = options.count
        self._stats = TailStats()
        self._lines = LineWriter(stdout_console()) if options.lines else None
        self._writer: CaptureWriter | None = None
        self._index: IndexStore | None = None
        self._unseen: list[Record] = []
        self._next_stats = time.monotonic() + 1.0

    def run(self) -> int:
        """Follow the streams until something ends it; files are finished whatever that was."""
        code = 0
        with ExitStack() as stack:
            if self._fleet is not None:
                stack.callback(self._fleet.watch.close)
            self._open_capture(stack)
            self._open_index(stack)
            reader = stack.enter_context(
                StreamReader(
                    [source for pod in self._pods for source in stream_sources(pod)],
                    use_replay=self._options.replay,
                    since_seq=self._options.since_seq,
                    positions=self._index.positions() if self._index is not None else None,
                )
            )
            try:
                self._follow(reader)
            except KeyboardInterrupt:
                code = INTERRUPTED
            finally:
                reader.stop()
                self._keep_rest(reader)
                self._sum_up(reader)
        return code

    def _open_capture(self, stack: ExitStack) -> None:
        options = self._options
        if options.capture is None:
            return
        from kvctl.capture import CaptureWriter

        self._writer = stack.enter_context(
            CaptureWriter(
                options.capture,
                pods={pod.name: _endpoints(pod) for pod in self._pods},
                force=options.force,
                append=options.append,
            )
        )

    def _open_index(self, stack: ExitStack) -> None:
        if self._options.index is not None:
            options = IndexOptions(
                pods=self._pods,
                models={pod.name: pod.model for pod in self._pods if pod.model},
                own_keys=self._options.own_keys,
            )
            self._index = stack.enter_context(open_store(self._options.index, options))

    def _follow(self, reader: StreamReader) -> None:
        began = time.monotonic()
        end = None if self._options.timeout is None else began + self._options.timeout
        self._check_at = began + self._options.connect_timeout
        while not self._finished(end):
            wait = _POLL_S if end is None else min(_POLL_S, max(0.0, end - time.monotonic()))
            records = reader.read(wait)
            for number, record in enumerate(records, 1):
                self._keep(record)
                if self._left == 0:
                    self._unseen = records[number:]
                    break
            self._flush()
            check_reader()
            if self._options.stats and time.monotonic() >= self._next_stats:
                self._next_stats += 1.0
                self._show_stats()
            if self._fleet is not None:
                self._follow_fleet(reader, self._fleet)
            if self._check_at is not None and time.monotonic() >= self._check_at:
                self._check_at = None
                self._check_connections(reader)

    def _finished(self, end: float | None) -> bool:
        return self._left == 0 or (end is not None and time.monotonic() >= end)

    def _check_connections(self, reader: StreamReader) -> None:
        silent = reader.unconnected()
        if not silent:
            return
        seconds = f"after {self._options.connect_timeout:g} s"
        faults = ", ".join(f"{endpoint} {fault}" for endpoint, fault in silent)
        if len(silent) == reader.endpoint_count and not self._options.follow:
            raise NothingConnectedError(f"{faults} {seconds}", remedy=_REMEDY)
        warn(f"{faults} {seconds}; still trying")

    def _follow_fleet(self, reader: StreamReader, fleet: FleetFollower) -> None:
        """Read what has joined the fleet, and no more what has left it."""
        now = time.monotonic()
        change = fleet.changes()
        for left in change.left:
            for source in stream_sources(left.pod):
                reader.remove_source(source)
            self._joining = [each for each in self._joining if each[1] != left.pod]
            self._keep(_note(left.pod, f"left the fleet: {left.reason}"))
        replaced = {left.pod.name for left in change.left}
        for pod in change.joined:
            # What the reader still has of the one before comes first.
            self._joining.append((now + _REJOIN_S if pod.name in replaced else now, pod))
        for at, pod in tuple(self._joining):
            if at <= now:
                self._joining.remove((at, pod))
                self._join(reader, pod)
        fault = str(fleet.watch.fault or "")
        if fault != self._fleet_fault:
            self._fleet_fault = fault
            warn(f"pods are not followed: {fault}") if fault else say("pods are followed again")

    def _join(self, reader: StreamReader, pod: Pod) -> None:
        if pod.name in self._names_read:
            # Its replay tells everything anew: what was taken in before would count twice.
            why = "the pod left the fleet and came back"
            for stream in pod.streams:
                self._keep(Restart(time.time_ns(), pod.name, stream.rank, None, why))
        self._names_read.add(pod.name)
        events = ", ".join(stream.events for stream in pod.streams)
        self._keep(_note(pod, f"joined the fleet: {events}"))
        for source in stream_sources(pod):
            reader.add_source(source)
        self._check_at = time.monotonic() + self._options.connect_timeout

    def _keep(self, record: Record) -> None:
        """Capture, index, count and show one record."""
        self._take_in(record)
        if self._options.stats:
            return
        if not isinstance(record, Batch):
            self._show_mark(record)
            return
        wanted = self._wanted(record)
        if self._left is not None:
            wanted = wanted[: self._left]
            self._left -= len(wanted)
        if not wanted:
            return
        if self._lines is not None:
            self._lines.write(record, wanted)
        else:
            for event in wanted:
                _write_object(event_object(record, event))

    def _take_in(self, record: Record) -> None:
        if self._writer is not None:
            self._writer.write(record)
        if self._index is not None:
            self._index.apply(record)
        self._stats.add(record)

    def _wanted(self, batch: Batch) -> list[Event]:
        events = batch.events.events
        if not self._options.events:
            return events
        return [event for event in events if self._options.events.wants(event)]

    def _show_mark(self, record: Record) -> None:
        if self._lines is not None:
            self._lines.write(record)
        elif not isinstance(record, Batch):
            _write_object(mark_object(record))

    def _show_stats(self) -> None:
        for entry in self._stats.tick():
            if self._lines is not None:
                self._lines.note(entry.line(), "")
            else:
                _write_object(entry.to_dict())
        self._flush()

    def _flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()
        if self._index is not None:
            self._index.commit()
        sys.stdout.flush()

    def _keep_rest(self, reader: StreamReader) -> None:
        """What was received but not yet read belongs in the capture and in the index."""
        while records := self._unseen or reader.read(0):
            self._unseen = []
            for record in records:
                if self._writer is not None or self._index is not None:
                    self._take_in(record)
        if self._index is not None:
            self._index.commit()

    def _sum_up(self, reader: StreamReader) -> None:
        for line in self._stats.summary():
            say(line)
        for status in reader.statuses():
            if status.duplicates:
                say(f"{status.pod}: {plural(status.duplicates, 'duplicate')} dropped")
        if self._writer is not None:
            self._writer.flush()
            say(
                f"{self._options.capture}: {plural(self._writer.records, 'record')} written, "
                f"{self._writer.bytes_written:,} bytes"
            )
        if self._index is not None:
            url = shown_url(self._options.index)
            for stream in self._index.summary().streams:
                where = f"{stream.pod} rank {stream.rank}" if stream.rank else stream.pod
                say(f"{url}: {where} holds {plural(stream.entries, 'entry')}")
            for remark in self._index.remarks():
                warn(f"{url}: {remark}")


def _endpoints(pod: Pod) -> dict[str, object]:
    """What a capture's header says of a pod."""
    return {
        "events": [stream.events for stream in pod.streams],
        "replay": [stream.replay for stream in pod.streams if stream.replay is not None],
    }


def _note(pod: Pod, text: str) -> Note:
    return Note(time.time_ns(), pod.name, None, text)


def _write_object(value: dict[str, object]) -> None:
    import json

    sys.stdout.write(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n")
