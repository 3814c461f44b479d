"""Captures -> a prefix index, and the report of what was in them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, TypeAlias

from kvctl.events import Record, Tally
from kvctl.index import GPU, IndexSummary, MemoryIndex, PodMatch
from kvctl.operate.until import Until
from kvctl.router import Choice, choose_aibrix, choose_longest
from kvctl.text import plural

RouterName: TypeAlias = Literal["longest", "aibrix"]


@dataclass(frozen=True)
class MatchReport:
    """Who holds how much of a prompt, and who would get it."""

    pods: Mapping[str, PodMatch]
    choice: Choice

    def to_dict(self) -> dict[str, Any]:
        """The `match` object of `replay -o json`; `router` where it goes by load as well."""
        return {
            "prompt_blocks": max((m.prompt_blocks for m in self.pods.values()), default=0),
            "pods": {pod: match.to_dict() for pod, match in self.pods.items()},
            "chosen": self.choice.pod,
            "why": self.choice.why,
            **({"router": self.choice.to_dict()} if self.choice.standings else {}),
        }


@dataclass(frozen=True)
class ReplayReport:
    """What a replay came to."""

    tally: Tally
    index: IndexSummary
    warnings: tuple[str, ...]
    elapsed_s: float

    @property
    def blocks_per_s(self) -> float:
        """Blocks stored per second of replay."""
        return self.tally.blocks_stored / self.elapsed_s if self.elapsed_s else 0.0

    def to_dict(self) -> dict[str, Any]:
        """`replay -o json` (DESIGN, Output) without the match."""
        return {
            "batches": self.tally.batches,
            "events": self.tally.events,
            "blocks_stored": self.tally.blocks_stored,
            "gaps": [gap.to_dict() for gap in self.tally.gaps],
            "restarts": [restart.to_dict() for restart in self.tally.restarts],
            "undecodable": self.tally.undecodable,
            "index": self.index.to_dict(),
            "warnings": list(self.warnings),
            "elapsed_s": round(self.elapsed_s, 6),
            "blocks_per_s": round(self.blocks_per_s, 1),
        }


def replay(
    records: Iterable[Record],
    index: MemoryIndex,
    *,
    until: Until | None = None,
    watch: Callable[[Record], None] | None = None,
) -> tuple[Tally, float]:
    """Feed records to the index; returns their tally and the seconds it took.

    ``watch`` sees each record that counted, after the index took it.
    """
    tally = Tally()
    began = time.perf_counter()
    for record in records:
        if until is not None and not until.admits(record):
            continue
        tally.add(record)
        index.apply(record)
        if watch is not None:
            watch(record)
    return tally, time.perf_counter() - began


@dataclass(frozen=True)
class RouterOptions:
    """Which router is asked, and what AIBrix's would know besides: requests that pods run (0 where
    not told), and the seed that decides among equals."""

    name: RouterName = "longest"
    running: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0


def match_report(
    matches: Mapping[str, PodMatch], router: RouterOptions | None = None
) -> MatchReport:
    """The match with a router's choice, by default that of the longest prefix."""
    router = router or RouterOptions()
    if router.name == "longest":
        return MatchReport(matches, choose_longest(matches))
    count = max((match.prompt_blocks for match in matches.values()), default=0)
    holders = [
        {pod for pod, match in matches.items() if match.blocks_any_medium > number}
        for number in range(count)
    ]
    running = {pod: router.running.get(pod, 0) for pod in (*matches, *router.running)}
    return MatchReport(matches, choose_aibrix(holders, running, Random(router.seed)))


def findings(
    tally: Tally, summary: IndexSummary, *, num_gpu_blocks: int | None = None
) -> list[str]:
    """What an operator should know about a replayed index, in sentences."""
    found = []
    if tally.undecodable:
        found.append(f"{plural(tally.undecodable, 'batch')} undecodable: what they said is missing")
    if tally.missing:
        found.append(
            f"{plural(tally.missing, 'batch')} missing in "
            f"{plural(sum(not gap.recovered for gap in tally.gaps), 'gap')}: "
            "entries may be missing or stale"
        )
    if tally.unknown:
        found.append(f"{plural(tally.unknown, 'event')} of unknown type kept but not applied")
    for stream in summary.streams:
        where = f"{stream.pod} rank {stream.rank}" if stream.rank else stream.pod
        if stream.unanchored:
            found.append(
                f"{where}: {stream.unanchored} of {stream.entries} entries are unanchored "
                "(their parents were never seen); no prompt matches them"
            )
        held = stream.media.get(GPU, 0)
        if num_gpu_blocks is not None and held > num_gpu_blocks - 1:
            found.append(
                f"{where}: {held} GPU entries, but an engine of {num_gpu_blocks} blocks can hold "
                f"{num_gpu_blocks - 1}: removes were lost, or --removals is set wrongly"
            )
    return found
