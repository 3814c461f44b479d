"""The fleet: which pods there are.

The one source that needs a library of its own, `kvctl.fleet.kubernetes`, is imported from there.
"""

from typing import TYPE_CHECKING

from kvctl.fleet.config import Config, Context, config_path, load_config
from kvctl.fleet.follow import FleetChange, FleetFollower, LeftPod
from kvctl.fleet.kubecontext import KubernetesContext
from kvctl.fleet.parse import is_address, parse_pod, pod_from_endpoint
from kvctl.fleet.pod import EngineKind, Pod, PodStream
from kvctl.fleet.presets import PRESETS, Preset
from kvctl.fleet.select import select_pods
from kvctl.fleet.source import (
    FleetSnapshot,
    FleetWatch,
    PodSource,
    SkippedPod,
    StaticPods,
    merge_pods,
)
from kvctl.lazy import exports

if TYPE_CHECKING:
    from kvctl.fleet.write import set_context, set_pod, use_context

__all__ = [
    "PRESETS",
    "Config",
    "Context",
    "EngineKind",
    "FleetChange",
    "FleetFollower",
    "FleetSnapshot",
    "FleetWatch",
    "KubernetesContext",
    "LeftPod",
    "Pod",
    "PodSource",
    "PodStream",
    "Preset",
    "SkippedPod",
    "StaticPods",
    "config_path",
    "is_address",
    "load_config",
    "merge_pods",
    "parse_pod",
    "pod_from_endpoint",
    "select_pods",
    "set_context",
    "set_pod",
    "use_context",
]

# What writes needs a library of its own.
__getattr__ = exports(
    __name__, {"set_context": "write", "set_pod": "write", "use_context": "write"}
)
