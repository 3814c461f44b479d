"""A pod as Kubernetes tells of it -> `Pod`, or why it is left out."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kvctl.errors import UsageError
from kvctl.fleet.build import build_pod
from kvctl.fleet.endpoint import bracketed
from kvctl.fleet.enginewords import EngineWords, engine_of
from kvctl.fleet.pod import Pod
from kvctl.fleet.presets import Preset
from kvctl.fleet.source import SkippedPod
from kvctl.fleet.wording import quoted

_RANKS = ("--data-parallel-size-local", "-dpl", "--data-parallel-size", "-dp", "--dp-size")
"""How many DP ranks a pod has: vLLM's options, those of this pod alone first; then SGLang's."""


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """Of an object's `metadata`, what kvctl reads."""

    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    resource_version: str = ""
    deletion_timestamp: str | None = None


class Container(msgspec.Struct, frozen=True):
    """Of a container, what kvctl reads."""

    command: list[str] | None = None
    args: list[str] | None = None


class Spec(msgspec.Struct, frozen=True):
    """Of a pod's `spec`, what kvctl reads."""

    containers: list[Container] | None = None


class Status(msgspec.Struct, frozen=True):
    """Of a pod's `status`, what kvctl reads."""

    phase: str = "Unknown"
    pod_ip: str | None = msgspec.field(default=None, name="podIP")


class KubePod(msgspec.Struct, frozen=True):
    """A pod object of the API (core/v1)."""

    metadata: Metadata
    spec: Spec = Spec()
    status: Status = Status()

    @property
    def name(self) -> str:
        """Its key, `namespace/name`, as AIBrix and llm-d have it."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


def read_pod(told: KubePod, preset: Preset, *, forwarded: bool = False) -> Pod | SkippedPod:
    """The engine replica that a pod is, or the reason why nothing can be read there.

    Ports come from the preset's labels, then from the engine's command line, then from what is
    usual. A pod that is to be ``forwarded`` needs no IP: without one its own name is its host.
    """
    words = engine_of(_command_lines(told))
    reason = _unfit(told, preset, forwarded) or _unheard(words)
    if reason:
        return SkippedPod(told.name, reason)
    try:
        return build_pod(told.name, _fields(told, preset, words), model=_model(told, preset, words))
    except UsageError as error:
        return SkippedPod(told.name, error.message.removeprefix(f"pod {told.name}: "))


def _unfit(told: KubePod, preset: Preset, forwarded: bool) -> str:
    if preset.required is not None:
        label, value = preset.required
        found = (told.metadata.labels or {}).get(label)
        if found is None:
            return f"it lacks the label {label}={value}"
        if found != value:
            return f"its label {label} is {quoted(found)}, not {value}"
    if told.metadata.deletion_timestamp is not None:
        return "it is being deleted"
    if told.status.phase != "Running":
        return f"it is not running ({told.status.phase})"
    if not told.status.pod_ip and not forwarded:
        return "it has no IP yet"
    return ""


def _unheard(words: EngineWords) -> str:
    if words.silent:
        return "its --kv-events-config does not enable kv cache events"
    events = words.endpoint("endpoint")
    if events is not None and events.scheme == "tcp" and not events.is_wildcard:
        return f"its engine sends its events to {events}"
    if events is not None and events.scheme == "ipc":
        return f"its engine's events stay in the pod, at {events}"
    return ""


def _fields(told: KubePod, preset: Preset, words: EngineWords) -> dict[str, str]:
    """The pod's fields, keys of `POD_KEYS`; what is not told is left to `build_pod` to assume."""
    address = told.status.pod_ip or told.metadata.name
    labels = told.metadata.labels or {}
    fields = {"host": address}
    engine = labels.get(preset.engine or "") or words.engine
    if engine:
        fields["engine"] = engine
    port = labels.get(preset.port or "") or words.number("--port")
    if port:
        fields["api"] = f"http://{bracketed(address)}:{port}"
    ranks = words.number(*_RANKS)
    if ranks is not None:
        fields["dp"] = str(ranks)
    events, replay = words.endpoint("endpoint"), words.endpoint("replay_endpoint")
    if events is not None:
        fields["events"] = f"tcp://{bracketed(address)}:{events.port}"
    if replay is not None:
        fields["replay"] = f"tcp://{bracketed(address)}:{replay.port}"
    elif words.events is not None or not preset.replay or (ranks or 1) > 1:
        # Where events are configured and no replay is, there is none; and where nothing is told,
        # the second rank's events are at the port that a replay would usually have.
        fields["replay"] = "none"
    return fields


def _model(told: KubePod, preset: Preset, words: EngineWords) -> str | None:
    labels = told.metadata.labels or {}
    return labels.get(preset.model or "") or words.options.get("--served-model-name") or None


def _command_lines(told: KubePod) -> list[Sequence[str]]:
    return [[*(each.command or ()), *(each.args or ())] for each in told.spec.containers or ()]
