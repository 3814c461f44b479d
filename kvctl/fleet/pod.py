"""`Pod`: one engine replica, and where its events, its replay and its API are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

EngineKind: TypeAlias = Literal["vllm", "sglang"]
"""Which engine serves a pod. The same two as `kvctl.engine.EngineKind`, spelled out here so that
reading a fleet does not load an HTTP client."""

Role: TypeAlias = Literal["events", "replay", "api"]

EVENTS_PORT = 5557
REPLAY_PORT = 5558
API_PORTS: dict[EngineKind, int] = {"vllm": 8000, "sglang": 30000}
"""The usual ports: the defaults, for replay those of the documentation of vLLM."""


@dataclass(frozen=True)
class PodStream:
    """One DP rank's event stream: a ZMQ endpoint for events, and one for replay if there is any.

    ``events_via`` and ``replay_via`` are where to connect for them, if it is elsewhere: at local
    ports that lead there.
    """

    rank: int
    events: str
    replay: str | None = None
    events_via: str | None = None
    replay_via: str | None = None


@dataclass(frozen=True)
class Pod:
    """One engine replica.

    ``name`` is `pod-a` or `namespace/pod-a`. ``api`` is the base URL of the engine's HTTP side,
    None for a pod that is only listened to; ``streams`` has one entry per DP rank, in order.
    ``bind`` says that the engine connects to kvctl for its events, not the reverse; a replay
    endpoint is the engine's in any case. ``assumed`` names what nobody told and the usual ports
    stand in for: an engine has no replay unless it is configured, so silence at an assumed
    replay endpoint is no fault. ``api_via`` is the base URL to call instead of ``api``, if it is
    another: that of a local port. Routers and people know the pod by the rest.
    """

    name: str
    streams: tuple[PodStream, ...]
    api: str | None = None
    model: str | None = None
    bind: bool = False
    engine: EngineKind = "vllm"
    assumed: frozenset[Role] = frozenset()
    api_via: str | None = None

    @property
    def is_forwarded(self) -> bool:
        """Whether it is reached by local ports."""
        return self.api_via is not None or any(each.events_via for each in self.streams)
