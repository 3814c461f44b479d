"""How the routers of a fleet mark its engines' pods in Kubernetes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Preset:
    """One router's labels, and what may be assumed of a pod that has them.

    ``selector`` lists the pods where no other is given. ``required`` is the label, with its value,
    without which the router takes no events from a pod. ``model``, ``port`` and ``engine`` are
    labels that tell the pod's model, its HTTP port and which engine serves it. ``replay`` says
    whether there is a replay at the usual port although nothing tells of one.
    """

    selector: str | None = None
    required: tuple[str, str] | None = None
    model: str | None = None
    port: str | None = None
    engine: str | None = None
    replay: bool = True


PLAIN = Preset()
"""Pods of no router that is known: the usual ports."""

PRESETS = {
    # Listed by the model's label: a pod whose events were forgotten is then seen, and told of.
    "aibrix": Preset(
        selector="model.aibrix.ai/name",
        required=("model.aibrix.ai/kv-events-enabled", "true"),
        model="model.aibrix.ai/name",
        port="model.aibrix.ai/port",
        engine="model.aibrix.ai/engine",
    ),
    "llm-d": Preset(
        selector="llm-d.ai/inferenceServing=true",
        required=("llm-d.ai/inferenceServing", "true"),
        replay=False,
    ),
}
"""By the name that `--preset` takes."""
