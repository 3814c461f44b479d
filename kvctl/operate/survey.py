"""The fleet as it is now: every pod's state, what its streams say, what they are worth."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from kvctl.engine import EngineState, PodState, State, probe_state
from kvctl.fleet import Pod
from kvctl.index import NameIndex
from kvctl.operate.sources import engine_client, stream_sources
from kvctl.stream import StreamReader, StreamStatus

_WORKERS = 16


@dataclass(frozen=True)
class PodRow:
    """One DP rank of one pod. ``entries`` are those the stream and its replay tell of."""

    pod: Pod
    rank: int
    state: EngineState | None
    reachable: bool
    entries: int
    stream: StreamStatus | None

    @property
    def model(self) -> str | None:
        """The model, as told by the flags or the metrics."""
        models = self.state.models if self.state is not None else ()
        return self.pod.model or (models[0] if models else None)

    @property
    def verdict(self) -> str:
        """The engine's state in a word."""
        return State.UNKNOWN.value if self.state is None else self.state.verdict.value

    @property
    def capacity(self) -> int | None:
        """The most blocks the engine can hold: all but its null block."""
        blocks = self.state.num_gpu_blocks if self.state is not None else None
        return None if blocks is None else blocks - 1

    @property
    def hit_rate(self) -> float | None:
        """Share of prompt tokens found cached since the engine's start, None before the first."""
        if self.state is None or not self.state.prefix_queries or self.state.prefix_hits is None:
            return None
        return self.state.prefix_hits / self.state.prefix_queries

    @property
    def answers(self) -> bool:
        """Whether anything of the pod answered: its API or its stream."""
        return self.reachable or (self.stream is not None and self.stream.connected)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; what is not known is absent."""
        row: dict[str, Any] = {
            "pod": self.pod.name,
            "rank": self.rank,
            "model": self.model,
            "state": self.verdict,
            "reason": self.state.reason if self.state is not None else "no api is given",
            "reachable": self.reachable,
            "entries": self.entries,
            "capacity": self.capacity,
            "hit_rate": None if self.hit_rate is None else round(self.hit_rate, 4),
        }
        if self.stream is not None:
            row["stream"] = {
                "connected": self.stream.connected,
                "replay": self.stream.replay,
                "last_seq": self.stream.last_seq,
                "gaps": self.stream.gaps,
                "missing": self.stream.missing,
                "restarts": self.stream.restarts,
                "undecodable": self.stream.undecodable,
            }
            row["stream"] = {k: v for k, v in row["stream"].items() if v is not None}
        return {name: value for name, value in row.items() if value is not None}


def survey(pods: Sequence[Pod], *, api_key: str | None, timeout: float) -> list[PodRow]:
    """Ask every pod at once; waits at most ``timeout`` seconds for streams and their replays.

    A pod that does not answer is a row like any other.
    """
    sources = [source for pod in pods for source in stream_sources(pod)]
    index = NameIndex()
    deadline = time.monotonic() + timeout
    with (
        ThreadPoolExecutor(_WORKERS) as workers,
        StreamReader(sources, tokens=False) as reader,
    ):
        probes = [workers.submit(_probe, pod, api_key, timeout) for pod in pods]
        while time.monotonic() < deadline and not reader.settled():
            for record in reader.read(0.05):
                index.apply(record)
        while records := reader.read(0.0):
            for record in records:
                index.apply(record)
        states = [probe.result() for probe in probes]
        statuses = {(status.pod, status.rank): status for status in reader.statuses()}
    return [
        row
        for pod, state in zip(pods, states, strict=True)
        for row in _rows(pod, state, index, statuses)
    ]


def _probe(pod: Pod, api_key: str | None, timeout: float) -> PodState | None:
    if pod.api is None:
        return None
    client = engine_client(pod, api_key=api_key, timeout=timeout)
    return probe_state(client, ranks=[stream.rank for stream in pod.streams])


def _rows(
    pod: Pod,
    state: PodState | None,
    index: NameIndex,
    statuses: Mapping[tuple[str, int], StreamStatus],
) -> list[PodRow]:
    by_rank = {each.rank: each for each in state.states} if state is not None else {}
    ranks = {stream.rank for stream in pod.streams} | by_rank.keys()
    return [
        PodRow(
            pod,
            rank,
            by_rank.get(rank),
            state is not None and state.reachable,
            index.entries_in(pod.name, rank),
            statuses.get((pod.name, rank)),
        )
        for rank in sorted(ranks)
    ]
