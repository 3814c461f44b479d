"""How `kvctl config view` shows a configuration."""

from __future__ import annotations

from typing import Any

from kvctl.cli.output import OutputFormat, plain_table, print_json, print_table, say
from kvctl.fleet import Config, Context, Pod
from kvctl.text import printable


def print_config(config: Config, output: OutputFormat) -> None:
    """The contexts and their pods; the file's name goes to stderr."""
    if output == "json":
        print_json(
            {
                "path": str(config.path),
                "current-context": config.current,
                "contexts": {name: _context(each) for name, each in config.contexts.items()},
            }
        )
        return
    say(str(config.path) if config.contexts else f"{config.path}: no context yet")
    table = plain_table("", "context", "pod", "model", "events", "replay", "api")
    for name, context in config.contexts.items():
        mark = "*" if name == config.current else ""
        if context.kubernetes is not None:
            where = printable(context.kubernetes.flags())
            table.add_row(mark, printable(name), "in Kubernetes", "-", where, "-", "-")
            continue
        for pod in context.pods or (None,):
            cells = ["-"] * 5 if pod is None else _cells(pod)
            table.add_row(mark, printable(name), *cells)
    print_table(table)


def _cells(pod: Pod) -> list[str]:
    return [
        printable(pod.name),
        printable(pod.model or "-"),
        " ".join(stream.events for stream in pod.streams),
        " ".join(_beside(each.replay, each.events) for each in pod.streams if each.replay) or "-",
        pod.api or "-",
    ]


def _beside(replay: str, events: str) -> str:
    """A replay's endpoint: its port only, where it is on the events' host."""
    host, _, port = replay.rpartition(":")
    return f":{port}" if events.rpartition(":")[0] == host else replay


def _context(context: Context) -> dict[str, Any]:
    told: dict[str, Any] = {
        "index": context.index,
        "api-key-file": str(context.api_key_file) if context.api_key_file else None,
        "pods": {pod.name: pod_dict(pod) for pod in context.pods},
    }
    if context.kubernetes is not None:
        told["kubernetes"] = {
            name.replace("_", "-"): value if isinstance(value, bool) else str(value)
            for name, value in context.kubernetes.told().items()
        }
    return told


def pod_dict(pod: Pod) -> dict[str, Any]:
    """A pod, JSON-ready."""
    return {
        "name": pod.name,
        "model": pod.model,
        "api": pod.api,
        "engine": pod.engine,
        "bind": pod.bind,
        "streams": [
            {"rank": stream.rank, "events": stream.events, "replay": stream.replay}
            for stream in pod.streams
        ],
    }
