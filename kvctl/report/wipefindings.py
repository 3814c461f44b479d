"""Findings about wipes: clears and restarts, and for how long entries were stale."""

from __future__ import annotations

from collections.abc import Iterator

from kvctl.report.finding import Finding
from kvctl.report.happenings import Wipe
from kvctl.report.timeline import Timeline
from kvctl.report.words import engine, entries, hour, name, seconds
from kvctl.text import plural

# An engine at work clears, and tells of it, within a step.
_PROMPT_S = 1.0
_LATE_S = 1.0


def wipes(timeline: Timeline) -> Iterator[Finding]:
    """Clears and restarts: those that were told at once together, the others one by one."""
    prompt: dict[tuple[str, int], list[Wipe]] = {}
    for wipe in timeline.wipes:
        if wipe.kind == "restart":
            yield _restart(wipe)
        elif wipe.entries and not wipe.inside and not _is_prompt(wipe):
            yield _late_clear(wipe)
        else:
            prompt.setdefault((wipe.pod, wipe.rank), []).append(wipe)
    for (pod, rank), wipes in prompt.items():
        yield _prompt_clears(pod, rank, wipes)
    if timeline.wipes.left_out:
        yield Finding(
            "info",
            "wipes-left-out",
            f"{timeline.wipes.left_out:,} clears and restarts of fewer entries are only counted",
            "The report keeps the heaviest.",
            "--since, --until and --pod make a report of less.",
        )


def is_window(wipe: Wipe) -> bool:
    """Whether entries may have been stale for longer than a step, for a time that is known."""
    if not wipe.entries or wipe.window is None:
        return False
    return wipe.kind == "restart" or not (wipe.inside or _is_prompt(wipe))


def _is_prompt(wipe: Wipe) -> bool:
    return wipe.window is not None and wipe.window < _PROMPT_S and wipe.late < _LATE_S


def _late_clear(wipe: Wipe) -> Finding:
    where = engine(wipe.pod, wipe.rank)
    on_the_way = (
        f" It came to the recorder {seconds(wipe.late)} later than usual."
        if wipe.late >= _LATE_S
        else ""
    )
    if wipe.window is None:
        span = "The capture has no batch before it: how long the entries were stale cannot be told."
    else:
        span = (
            f"The wipe was between {hour(wipe.after)}, the batch before, and {hour(wipe.at)}, the "
            "step that told of it: an engine that takes no step says nothing."
        )
    held = entries(wipe.entries)
    return Finding(
        "medium",
        "stale-window",
        f"{where} wiped its cache and did not say when: {held} stale "
        + ("for a time unknown" if wipe.window is None else f"for {seconds(wipe.window)} at most"),
        f"{span}{on_the_way} Until then a router that goes by the events preferred {where} for "
        f"prompts that it had to compute anew.",
        "Purge where the wipe is made (kvctl reset|sleep POD --purge), and let kvctl reconcile "
        "--watch find what no event tells.",
        wipe.pod,
        wipe.rank,
        wipe.at if wipe.after is None else wipe.after,
        wipe.at,
        wipe.entries * (wipe.window or 0.0),
    )


def _restart(wipe: Wipe) -> Finding:
    where = engine(wipe.pod, wipe.rank)
    window = wipe.window
    silent = wipe.at is None
    return Finding(
        "medium" if wipe.entries else "low",
        "restart",
        f"{where} restarted: {entries(wipe.entries)} from before it stale "
        + ("for a time unknown" if window is None else f"for {seconds(window)} at most"),
        f"Its last batch before was at {hour(wipe.after)}, "
        + (
            "and none of its new life is in the capture. "
            if silent
            else f"the first of its new life at {hour(wipe.at)}. "
        )
        + "A new process begins with an empty cache and says nothing until it has stored a block"
        + (f" ({name(wipe.reason)})." if wipe.reason else "."),
        "kvctl reconcile --watch sees a restart by the process's start time, before its first "
        "batch.",
        wipe.pod,
        wipe.rank,
        wipe.after,
        wipe.at,
        wipe.entries * (window or 0.0),
    )


def _prompt_clears(pod: str, rank: int, wipes: list[Wipe]) -> Finding:
    where = engine(pod, rank)
    most = max(wipe.entries for wipe in wipes)
    longest = max((wipe.window or 0.0 for wipe in wipes if wipe.entries), default=0.0)
    if most:
        means = (
            f"The longest that any entry can have been stale is {seconds(longest)}."
            if longest
            else "They were told with the step that they happened in."
        )
    else:
        means = "The index held nothing of it at the time: nothing was stale."
    return Finding(
        "info",
        "clears",
        f"{plural(len(wipes), 'clear')} of {where}, up to {entries(most)} each, told at once"
        if most
        else f"{plural(len(wipes), 'clear')} of {where} with nothing held",
        means,
        "Nothing.",
        pod,
        rank,
        min(wipe.moment for wipe in wipes),
        max(wipe.moment for wipe in wipes),
    )
