"""What a verified purge found, step by step, and what it comes to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """The outcome of driving one pod's engine."""

    VERIFIED = "verified"
    """The engine reported the clear, and the index is clean."""
    PURGED = "purged"
    """The index is clean because kvctl made it so."""
    STALE = "stale"
    """Entries remain, or what the index holds could not be seen."""
    FAILED = "failed"
    """The engine refused, or did not answer."""
    KEPT = "kept"
    """Sleep level 0: nothing was wiped, nothing may be purged."""
    AWAKE = "awake"
    """The engine is awake, and the index holds nothing from before."""


@dataclass(frozen=True)
class Step:
    """One step with its evidence. ``ok`` None: it says nothing either way, or was not taken."""

    name: str
    ok: bool | None
    detail: str

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"name": self.name, "ok": self.ok, "detail": self.detail}


@dataclass(frozen=True)
class Report:
    """What was done to one pod. Entries are those stored before the call."""

    pod: str
    action: str
    steps: tuple[Step, ...]
    entries_before: int
    entries_after: int
    verdict: Verdict

    @property
    def exit_code(self) -> int:
        """0 consistent, 1 failed, 3 not verified."""
        return {Verdict.FAILED: 1, Verdict.STALE: 3}.get(self.verdict, 0)

    def to_dict(self) -> dict[str, Any]:
        """`reset|sleep|wake -o json` (DESIGN, Output)."""
        return {
            "pod": self.pod,
            "action": self.action,
            "steps": [step.to_dict() for step in self.steps],
            "entries_before": self.entries_before,
            "entries_after": self.entries_after,
            "verdict": self.verdict.value,
        }
