"""What can be seen of one pod: its engine's answers, and all that its streams tell in a while."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from kvctl.engine import EngineError, PodState, probe_state
from kvctl.events import Batch, BlockStored, Undecodable, is_map_form
from kvctl.fleet import Pod
from kvctl.index import MemoryIndex
from kvctl.operate.hashcheck import HashCheck
from kvctl.operate.sources import engine_client, stream_sources
from kvctl.stream import StreamReader, StreamStatus

_WORKERS = 16


@dataclass
class StreamSeen:
    """What one DP rank's stream told. Times are the engine's clock, seconds."""

    status: StreamStatus | None = None
    first_seq: int | None = None
    last_seq: int | None = None
    first_ts: float = 0.0
    last_ts: float = 0.0
    undecodable: str = ""
    maps: bool = False
    hash_forms: set[str] = field(default_factory=set)
    block_sizes: set[int] = field(default_factory=set)
    hashes: HashCheck = field(default_factory=HashCheck)

    @property
    def batches(self) -> int:
        """How many batches lie between the first and the last."""
        if self.first_seq is None or self.last_seq is None:
            return 0
        return self.last_seq - self.first_seq + 1

    def take(self, record: Batch) -> None:
        """Take one batch in."""
        wire, ts = record.wire, record.events.ts
        if self.first_seq is None or wire.seq < self.first_seq:
            self.first_seq, self.first_ts = wire.seq, ts
        self.last_seq, self.last_ts = wire.seq, ts
        self.maps = self.maps or is_map_form(wire.payload)
        for event in record.events.events:
            if isinstance(event, BlockStored):
                for block_hash in event.block_hashes[:1]:
                    form = "int" if isinstance(block_hash, int) else f"{len(block_hash)} bytes"
                    self.hash_forms.add(form)
                if event.token_ids and event.kv_cache_spec_kind in (None, "full_attention"):
                    self.block_sizes.add(event.block_size)
                self.hashes.take(event)


@dataclass
class PodSeen:
    """One pod. ``control`` says what its control endpoints answer: None where they are there, else
    why not; ``skew`` is how far its clock is ahead of ours, seconds, None where not told."""

    pod: Pod
    state: PodState | None = None
    control: str | None = None
    skew: float | None = None
    streams: dict[int, StreamSeen] = field(default_factory=dict)
    contents: dict[bytes, str] = field(default_factory=dict)
    entries: dict[int, int] = field(default_factory=dict)


def examine(pods: Sequence[Pod], *, api_key: str | None, timeout: float) -> list[PodSeen]:
    """Look at every pod at once; waits ``timeout`` seconds at most for streams and replays."""
    seen = {pod.name: PodSeen(pod) for pod in pods}
    for pod in pods:
        seen[pod.name].streams = {stream.rank: StreamSeen() for stream in pod.streams}
    index = MemoryIndex(models={pod.name: pod.model for pod in pods if pod.model})
    sources = [source for pod in pods for source in stream_sources(pod)]
    end = time.monotonic() + timeout
    with ThreadPoolExecutor(_WORKERS) as workers, StreamReader(sources) as reader:
        asked = [workers.submit(_ask, seen[pod.name], api_key, timeout) for pod in pods]
        while time.monotonic() < end and not reader.settled():
            _take(reader, seen, index, 0.05)
        _take(reader, seen, index, 0.0)
        for each in asked:
            each.result()
        for status in reader.statuses():
            stream = seen[status.pod].streams.setdefault(status.rank, StreamSeen())
            stream.status = status
    for pod_seen in seen.values():
        for entry in index.entries(pod_seen.pod.name):
            rank = entry.rank or 0
            pod_seen.entries[rank] = pod_seen.entries.get(rank, 0) + (entry.medium == "GPU")
            if entry.anchored and entry.content is not None:
                pod_seen.contents[entry.content] = str(entry.block_hash)
    return list(seen.values())


def _take(
    reader: StreamReader, seen: dict[str, PodSeen], index: MemoryIndex, timeout: float
) -> None:
    for record in reader.read(timeout):
        index.apply(record)
        if isinstance(record, Batch):
            streams = seen[record.wire.pod].streams
            streams.setdefault(record.wire.rank, StreamSeen()).take(record)
        elif isinstance(record, Undecodable):
            stream = seen[record.wire.pod].streams.setdefault(record.wire.rank, StreamSeen())
            stream.undecodable = record.error


def _ask(seen: PodSeen, api_key: str | None, timeout: float) -> None:
    pod = seen.pod
    if pod.api is None:
        return
    client = engine_client(pod, api_key=api_key, timeout=timeout)
    seen.state = probe_state(client, ranks=[stream.rank for stream in pod.streams])
    if not seen.state.reachable:
        return
    try:
        if client.is_sleeping() is None:
            seen.control = "it has no /is_sleeping (404)"
    except EngineError as error:
        seen.control = str(error)
    seen.skew = client.clock_skew()
