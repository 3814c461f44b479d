"""A pod's streams as the sources a `StreamReader` takes."""

from __future__ import annotations

from collections.abc import Iterator

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
