"""The fleet: which pods there are."""

from kvctl.fleet.config import Config, Context, config_path, load_config
from kvctl.fleet.parse import is_address, parse_pod, pod_from_endpoint
from kvctl.fleet.pod import EngineKind, Pod, PodStream
from kvctl.fleet.select import select_pods
from kvctl.fleet.source import FleetSnapshot, PodSource, SkippedPod, StaticPods, merge_pods
from kvctl.fleet.write import set_pod, use_context

__all__ = [
    "Config",
    "Context",
    "EngineKind",
    "FleetSnapshot",
    "Pod",
    "PodSource",
    "PodStream",
    "SkippedPod",
    "StaticPods",
    "config_path",
    "is_address",
    "load_config",
    "merge_pods",
    "parse_pod",
    "pod_from_endpoint",
    "select_pods",
    "set_pod",
    "use_context",
]
