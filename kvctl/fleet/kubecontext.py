"""Where a context of config.toml finds its pods in Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from kvctl.fleet.presets import PRESETS
from kvctl.fleet.wording import nearest, quoted


@dataclass(frozen=True)
class KubernetesContext:
    """Which pods of which cluster, as the options of these names tell it; None is not told.

    ``selector`` or ``preset`` is there: without one nothing says which pods are engines.
    """

    namespace: str | None = None
    all_namespaces: bool = False
    selector: str | None = None
    preset: str | None = None
    kube_context: str | None = None
    kubeconfig: Path | None = None
    port_forward: bool = False

    def told(self) -> dict[str, Any]:
        """What is told, by the names of the fields."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value}

    def flags(self) -> str:
        """The options of a command line that say the same."""
        words = []
        for name, value in self.told().items():
            words.append(f"--{name.replace('_', '-')}")
            if value is not True:
                words.append(str(value))
        return " ".join(words)


_SWITCHES = {
    each.name.replace("_", "-"): each.default is False for each in fields(KubernetesContext)
}
KUBERNETES_KEYS = tuple(_SWITCHES)
"""What may be said in a context's `kubernetes` table, each as the option of its name."""


def read_kubernetes(values: Mapping[str, Any], folder: Path) -> KubernetesContext:
    """A context's `kubernetes` table, its keys known already; ``folder`` for a relative path.

    Raises `ValueError` that tells what is wrong, without the table's name.
    """
    words: dict[str, Any] = {}
    for key, value in values.items():
        wanted, what = (bool, "true or false") if _SWITCHES[key] else (str, "a string")
        if not isinstance(value, wanted) or value == "":
            raise ValueError(f"{key}: expected {what}")
        words[key.replace("-", "_")] = value
    preset = words.get("preset")
    if preset is not None and preset not in PRESETS:
        raise ValueError(f"preset: {quoted(preset)} is no preset ({nearest(preset, PRESETS)})")
    if words.get("namespace") and words.get("all_namespaces"):
        raise ValueError("namespace and all-namespaces exclude each other")
    if not (preset or words.get("selector")):
        raise ValueError("nothing says which pods are engines: selector or preset is missing")
    if "kubeconfig" in words:
        try:
            words["kubeconfig"] = folder / Path(words["kubeconfig"]).expanduser()
        except RuntimeError:
            raise ValueError("kubeconfig: there is no such user") from None
    return KubernetesContext(**words)
