"""A pod as the layers below take it: its streams, its engine."""

from __future__ import annotations

from collections.abc import Iterator

from kvctl.engine import EngineClient
from kvctl.engine.client import DEFAULT_TIMEOUT
from kvctl.fleet import Pod
from kvctl.stream import StreamSource


def stream_sources(pod: Pod) -> Iterator[StreamSource]:
    """One source for every stream of the pod."""
    for stream in pod.streams:
        yield StreamSource(
            pod=pod.name,
            events=stream.events,
            replay=stream.replay,
            rank=stream.rank,
            bind=pod.bind,
            events_via=stream.events_via,
            replay_via=stream.replay_via,
        )


def engine_client(
    pod: Pod, *, api_key: str | None, timeout: float = DEFAULT_TIMEOUT
) -> EngineClient:
    """What calls the engine of a pod that has an API; ``timeout`` in seconds."""
    return EngineClient(
        pod.name, pod.api or "", kind=pod.engine, api_key=api_key, timeout=timeout, via=pod.api_via
    )
