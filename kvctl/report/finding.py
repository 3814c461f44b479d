"""One thing that an operator should know, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

Severity: TypeAlias = Literal["high", "medium", "low", "info"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)


@dataclass(frozen=True)
class Finding:
    """One thing found. ``kind`` is a word for programs; the texts are safe to show.

    ``begin`` and ``end`` are engine time, None where there is none; ``weight`` orders what is
    equally severe.
    """

    severity: Severity
    kind: str
    what: str
    means: str
    todo: str
    pod: str | None = None
    rank: int | None = None
    begin: float | None = None
    end: float | None = None
    weight: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; what there is none of is absent."""
        told = {
            "severity": self.severity,
            "kind": self.kind,
            "pod": self.pod,
            "rank": self.rank,
            "begin": self.begin,
            "end": self.end,
            "what": self.what,
            "means": self.means,
            "todo": self.todo,
        }
        return {key: value for key, value in told.items() if value is not None}
