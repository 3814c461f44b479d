"""What a router model answers: a pod, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Standing:
    """How one pod stood: leading blocks of the prompt by the router's own walk, the share of the
    prompt in percent, its running requests, and whether it was a candidate at all."""

    blocks: int
    percent: int
    running: int
    candidate: bool = True

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "blocks": self.blocks,
            "percent": self.percent,
            "running": self.running,
            "candidate": self.candidate,
        }


@dataclass(frozen=True)
class Choice:
    """The pod a router would send the prompt to, None where nothing speaks for any; and why.

    ``rule`` names what decided. ``standings``, ``mean`` and ``deviation`` (of running requests)
    are what it was decided by, where the router looks at loads.
    """

    pod: str | None
    why: str
    rule: str = ""
    standings: Mapping[str, Standing] = field(default_factory=dict)
    mean: float | None = None
    deviation: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The `router` object of a match in JSON."""
        loads = {} if self.mean is None else {"mean": self.mean, "deviation": self.deviation}
        return {
            "rule": self.rule,
            "pods": {pod: each.to_dict() for pod, each in self.standings.items()},
            **loads,
        }
