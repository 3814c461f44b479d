"""The run of `kvctl reset`, `sleep` and `wake`: consent, one pod after the other, the report."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kvctl.cli.output import OutputFormat, marked_table, print_json, stdout_console
from kvctl.cli.podoptions import InKubernetes, context_key, resolve_pods
from kvctl.errors import KvctlError, UsageError
from kvctl.fleet import Pod
from kvctl.index import PurgeableIndex
from kvctl.operate.control import Control, ControlOptions
from kvctl.operate.indexes import IndexOptions, open_purgeable, shown_url
from kvctl.operate.live import LiveIndex
from kvctl.operate.sources import engine_client
from kvctl.operate.target import StoredTarget
from kvctl.operate.verdicts import Report, Step, Verdict
from kvctl.text import plural, printable

_MARKS = {True: ("✓", "green"), False: ("✗", "bold red"), None: ("·", "dim")}
_STYLES = {
    Verdict.FAILED: "bold red",
    Verdict.STALE: "bold red",
    Verdict.KEPT: "yellow",
}
_NAME_WIDTH = 14


class DeclinedError(KvctlError):
    """The question was answered with no."""


def control(
    names: list[str],
    specs: list[str],
    context: str | None,
    options: ControlOptions,
    *,
    kubernetes: InKubernetes,
    index: str | None,
    yes: bool,
    dry_run: bool,
    output: OutputFormat,
) -> int:
    """Drive each pod and print the reports; returns the exit code of the worst."""
    pods = resolve_pods(names, specs, context, kubernetes)
    for pod in pods:
        if pod.api is None:
            raise UsageError(
                f"pod {pod.name} has no api", remedy="give it one: --pod name=…,api=http://…"
            )
    token = context_key(context)
    if dry_run:
        _show_plan(pods, options, index, output)
        return 0
    if not yes:
        _ask(pods, options)
    table = output == "table"
    reports = []
    with _stored(index, pods) as stored:
        for pod in pods:
            if table:
                stdout_console().print(f"{printable(pod.name)}: {options.title}", style="bold")
            client = engine_client(pod, api_key=token)
            target = None
            if stored is not None:
                target = StoredTarget(stored, pod.name, shown_url(index))
            with LiveIndex(pod) as live:
                tell = _print_step if table else lambda _step: None
                reports.append(Control(client, live, options, tell, target).run())
            if table:
                _print_verdict(reports[-1])
    if not table:
        _print_objects([report.to_dict() for report in reports])
    codes = {report.exit_code for report in reports}
    return 1 if 1 in codes else max(codes)


@contextmanager
def _stored(index: str | None, pods: Sequence[Pod]) -> Iterator[PurgeableIndex | None]:
    """The index that was named, if one was."""
    if index is None:
        yield None
        return
    with open_purgeable(index, IndexOptions(pods=pods)) as stored:
        yield stored


def _ask(pods: Sequence[Pod], options: ControlOptions) -> None:
    names = ", ".join(printable(pod.name) for pod in pods)
    if not sys.stdin.isatty():
        raise UsageError(
            f"{options.title} of {names} wants consent, and there is no terminal to ask on",
            remedy="--yes goes ahead, --dry-run only shows",
        )
    loss = "its prefix cache is lost" if options.wipes else "its requests wait"
    sys.stderr.write(f"{options.title} of {names}: {loss}. Go ahead? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise DeclinedError("nothing was done")


def _show_plan(
    pods: Sequence[Pod], options: ControlOptions, index: str | None, output: OutputFormat
) -> None:
    plans = [_plan(pod, options, index) for pod in pods]
    if output == "json":
        _print_objects(plans)
        return
    for plan in plans:
        checked = f" and {plan['index']}" if "index" in plan else ""
        watched = f"and watch {plural(plan['streams'], 'stream')}{checked}"
        print(printable(f"{plan['pod']}: would {options.title} at {plan['api']}, {watched}"))


def _plan(pod: Pod, options: ControlOptions, index: str | None) -> dict[str, Any]:
    plan = {
        "pod": pod.name,
        "action": options.action,
        "dry_run": True,
        "api": pod.api,
        "streams": len(pod.streams),
    }
    if options.action == "sleep":
        plan["level"] = options.level
    if index is not None:
        plan["index"] = shown_url(index)
    return plan


def _print_objects(objects: Sequence[dict[str, Any]]) -> None:
    print_json(objects[0] if len(objects) == 1 else objects)


def _print_step(step: Step) -> None:
    from rich.text import Text

    mark, style = _MARKS[step.ok]
    line = marked_table(_NAME_WIDTH)
    line.add_row(f"  {step.name}", Text(mark, style=style), printable(step.detail))
    stdout_console().print(line)


def _print_verdict(report: Report) -> None:
    console = stdout_console()
    console.print(
        f"  {report.verdict.value}: {report.entries_before} entries before, "
        f"{report.entries_after} of them left",
        style=_STYLES.get(report.verdict, "bold green"),
    )
