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
    """One DP rank's event stream: a ZMQ endpoint for events, and one for replay if there is any."""

    rank: int
    events: str
    replay: str | None = None


@dataclass(frozen=True)
class Pod:
    """One engine replica.

    ``name`` is `pod-a` or `namespace/pod-a`. ``api`` is the base URL of the engine's HTTP side,
    None for a pod that is only listened to; ``streams`` has one entry per DP rank, in order.
    ``bind`` says that the engine connects to kvctl for its events, not the reverse; a replay
    endpoint is the engine's in any case. ``assumed`` names what nobody told and the usual ports
    stand in for: an engine has no replay unless it is configured, so silence at an assumed
    replay endpoint is no fault.
    """

    name: str
    streams: tuple[PodStream, ...]
    api: str | None = None
    model: str | None = None
    bind: bool = False
    engine: EngineKind = "vllm"
    assumed: frozenset[Role] = frozenset()
