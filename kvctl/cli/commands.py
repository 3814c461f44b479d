"""The commands of kvctl: where each is, and what the help of `kvctl` itself says of it.

A command's module is imported when the command runs: here stands what is told before.
"""

from __future__ import annotations

from dataclasses import dataclass

_WATCH = "Look at a fleet"
_INDEX = "Indexes and captures"
_ENGINES = "Drive engines"
_SETUP = "Try out, set up"


@dataclass(frozen=True)
class Entry:
    """One command: ``attribute`` of ``kvctl.cli.module``, and the first line of its help."""

    name: str
    module: str
    attribute: str
    panel: str
    summary: str


COMMANDS = (
    Entry("tail", "tail", "tail", _WATCH, "Show the live events of pods, a line each."),
    Entry("pods", "pods", "pods", _WATCH, "Show every pod: state, entries, hit rate, stream."),
    Entry("top", "top", "top", _WATCH, "Watch pods live: states, rates, entries, losses."),
    Entry(
        "doctor", "doctor", "doctor", _WATCH, "Check pods, and say what to do about what is wrong."
    ),
    Entry(
        "index", "index", "app", _INDEX, "Look into an index: its entries, who matches a prompt."
    ),
    Entry(
        "reconcile",
        "reconcile",
        "reconcile",
        _INDEX,
        "Find what an index holds for engines that lost it.",
    ),
    Entry(
        "replay", "replay", "replay", _INDEX, "Turn captures into a prefix index, and tell of it."
    ),
    Entry(
        "report",
        "report",
        "report",
        _INDEX,
        "Tell what happened in a capture: findings, charts.",
    ),
    Entry(
        "capture", "capture", "app", _INDEX, "Look into capture files, convert them, redact them."
    ),
    Entry(
        "reset",
        "control",
        "reset",
        _ENGINES,
        "Reset prefix caches, and verify that the index followed.",
    ),
    Entry(
        "sleep",
        "control",
        "sleep",
        _ENGINES,
        "Put engines to sleep, and verify that the index followed.",
    ),
    Entry(
        "wake", "control", "wake", _ENGINES, "Wake engines, and say what the index should hold now."
    ),
    Entry(
        "reproduce-2287",
        "reproduce",
        "reproduce",
        _SETUP,
        "Show AIBrix issue #2287, and what each fix is worth.",
    ),
    Entry("sim", "sim", "sim", _SETUP, "Run simulated vLLM engines until stopped."),
    Entry(
        "config",
        "config",
        "app",
        _SETUP,
        "Look at and change config.toml, whose contexts name fleets.",
    ),
    Entry("explain", "explain", "explain", _SETUP, "Explain the JSON of commands, and exit codes."),
    Entry("completion", "completion", "completion", _SETUP, "Print or install shell completion."),
)
