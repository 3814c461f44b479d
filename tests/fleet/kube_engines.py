"""Simulated engines as pods of a cluster."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

from kube_server import pod_object

from kvctl.sim import SimPod


def as_pod(engine: SimPod, *, ip: str | None = "127.0.0.1", **told: Any) -> dict[str, Any]:
    """The engine as a pod of the cluster. All pods share this host: their ports tell them apart."""
    events, replay = (urlsplit(each[0]).port for each in (engine.events, engine.replay))
    config = {
        "enable_kv_cache_events": True,
        "endpoint": f"tcp://*:{events}",
        "replay_endpoint": f"tcp://*:{replay}",
    }
    args = ["--port", str(urlsplit(engine.api).port), "--kv-events-config", json.dumps(config)]
    if len(engine.events) > 1:
        args += ["--data-parallel-size", str(len(engine.events))]
    return pod_object(engine.name, ip=ip, args=args, **told)
