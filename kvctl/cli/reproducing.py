"""The run of `kvctl reproduce-2287`: cells as they end, the matrix, what it proves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kvctl.cli.output import (
    OutputFormat,
    plain_table,
    print_json,
    print_table,
    say,
    somebody_looks_on,
    stdout_console,
    warn,
)
from kvctl.cli.podoptions import context_key, resolve_pods
from kvctl.errors import KvctlError, UsageError
from kvctl.events import Record
from kvctl.fleet import Pod
from kvctl.reproduce.matrix import Choices, Matrix, RealGateway, run_real, run_simulated
from kvctl.reproduce.scenario import CellResult, Delivery, Handler, Trigger
from kvctl.text import plural, printable

if TYPE_CHECKING:
    from rich.text import Text

_HEADS = {
    Handler.NOOP: "noop",
    Handler.EVENT: "event",
    Handler.RECONCILE: "+reconcile",
    Handler.FULL: "+sync",
    Handler.BLIND: "blind",
    Handler.GATEWAY: "gateway",
}
_LOST = "no metric shows a reset; the event did, and was lost"
_AT_ONCE = "whoever resets it has to purge at once (+sync)"
_REASONS = {
    Trigger.RESET_IDLE: "no metric shows a reset of an idle engine, and its clear comes only with "
    f"its next step: {_AT_ONCE}, or make it step (kvctl reset --nudge), or probe it (--probe)",
    Trigger.RESET_THEN_TRAFFIC: f"{_LOST}: {_AT_ONCE}, or probe it (kvctl reset --probe)",
    Trigger.RESET_RUNNING: f"{_LOST}: {_AT_ONCE}, or probe it (kvctl reset --probe)",
    Trigger.SLEEP_1_WAKE: "the counters show that it slept, but not how deep: it is suspect, and "
    f"not purged on doubt (reconcile --purge-suspect does): {_AT_ONCE}",
    Trigger.OOM_RESET: "the engine wiped its cache by itself: nobody called for it, no metric "
    "shows it, and the event was lost. Only a stream without losses helps: replay",
}


@dataclass(frozen=True)
class ReproducingOptions:
    """How it runs and what it shows. Times in seconds."""

    pod_a: str | None
    pod_b: str | None
    context: str | None
    gateway: str | None
    gateway_settle: float
    yes: bool
    explain: bool
    save: Path | None
    expect: Literal["fixed", "bug"] | None
    output: OutputFormat


class Reproducing:
    """One run; `run` returns the exit code."""

    def __init__(self, choices: Choices, options: ReproducingOptions) -> None:
        if (options.pod_a is None) != (options.pod_b is None):
            raise UsageError("two engines are needed", remedy="--pod-a and --pod-b")
        if options.gateway is not None and options.pod_a is None:
            raise UsageError(
                "--gateway needs the pods behind it", remedy="--pod-a and --pod-b tell who served"
            )
        if Handler.GATEWAY in choices.handlers:
            raise UsageError("no router model is called gateway", remedy="--gateway URL")
        real = options.pod_a is not None
        if real and choices.aibrix_scope:
            raise UsageError("--aibrix-scope is for the simulated engines", remedy="leave it away")
        cells = choices.scenarios(real=real)
        if not cells:
            raise UsageError("no real engine does that when asked", remedy="another --trigger")
        if options.save is not None and len(cells) != 1:
            raise UsageError(
                f"--save keeps one cell, and these are {len(cells)}",
                remedy="--trigger, --delivery and --handler pick one",
            )
        self._choices = choices
        self._options = options
        self._cells = len(cells)
        self._done = 0

    def run(self) -> int:
        """Run the cells and print what they came to."""
        options = self._options
        with self._kept() as keep:
            matrix = self._run(keep)
        if options.output == "json":
            print_json(matrix.to_dict())
        else:
            if options.explain:
                for each in matrix.results:
                    _print_story(each)
            _print_matrix(matrix)
        if options.expect is not None:
            fixed = not matrix.reproduced
            return 0 if fixed == (options.expect == "fixed") else 3
        surprises = [] if options.gateway is not None else matrix.surprises()
        for surprise in surprises:
            warn(surprise)
        if surprises:
            raise KvctlError(
                "the experiment did not show what is known of #2287",
                remedy="--explain tells a cell step by step",
            )
        return 0

    def _run(self, keep: Callable[[Record], None]) -> Matrix:
        options = self._options
        pods = self._pods()
        if pods is None:
            return run_simulated(self._choices, self._tell, keep)
        self._ask(pods)
        gateway = None
        if options.gateway is not None:
            gateway = RealGateway(options.gateway, options.gateway_settle)
            self._cells = len({each.trigger for each in self._choices.scenarios(real=True)})
        return run_real(
            self._choices,
            pods,
            self._tell,
            keep,
            api_key=context_key(options.context),
            gateway=gateway,
        )

    def _pods(self) -> tuple[Pod, Pod] | None:
        options = self._options
        if options.pod_a is None or options.pod_b is None:
            return None
        found = []
        for word, name in ((options.pod_a, "pod-a"), (options.pod_b, "pod-b")):
            if "=" in word:
                spec = word if "name=" in word else f"name={name},{word}"
                pods = resolve_pods([], [spec], options.context)
            else:
                pods = resolve_pods([word], [], options.context)
            found.append(pods[0])
        if found[0].name == found[1].name:
            raise UsageError(f"both are pod {found[0].name}", remedy="take two engines")
        return found[0], found[1]

    def _ask(self, pods: Sequence[Pod]) -> None:
        if self._options.yes:
            return
        names = " and ".join(printable(pod.name) for pod in pods)
        if not sys.stdin.isatty():
            raise UsageError(
                f"the experiment wipes the caches of {names} and puts one to sleep: it wants "
                "consent, and there is no terminal to ask on",
                remedy="--yes goes ahead",
            )
        sys.stderr.write(f"Wipe the caches of {names}, and put {pods[0].name} to sleep? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise KvctlError("nothing was done")

    @contextmanager
    def _kept(self) -> Iterator[Callable[[Record], None]]:
        if self._options.save is None:
            yield lambda _record: None
            return
        from kvctl.capture import CaptureWriter

        with CaptureWriter(self._options.save, pods={}) as writer:
            yield writer.write
            writer.flush()
            records = writer.records
        say(f"{self._options.save}: {plural(records, 'record')} written")

    def _tell(self, result: CellResult) -> None:
        """A line per cell, where somebody is looking on."""
        self._done += 1
        if somebody_looks_on():
            told = _cell(result)
            say(f"{self._done:3}/{self._cells}  {result.scenario.name}: {told}")


def _cell(result: CellResult) -> str:
    letter = result.routed_to.rpartition("-")[2].upper()
    name = letter if len(letter) == 1 else result.routed_to
    if not result.is_bug:
        return f"ok {name}"
    stale = "?" if result.stale_entries is None else str(result.stale_entries)
    return f"bug {name} {stale}/{result.lost_tokens}"


def _print_story(result: CellResult) -> None:
    console = stdout_console()
    console.print(result.scenario.name, style="bold")
    for line in result.story:
        console.print(f"  {printable(line)}", soft_wrap=True)
    verdict = "bug" if result.is_bug else "ok"
    console.print(
        f"  {verdict}: {_in_words(result)}", style="bold red" if result.is_bug else "green"
    )
    console.print()


def _in_words(result: CellResult) -> str:
    if not result.is_bug:
        return f"{result.routed_to} had {result.hit_tokens} tokens cached, the other no more"
    stale = ""
    if result.stale_entries:
        stale = f", for {plural(result.stale_entries, 'stale entry')}"
    return (
        f"sent to {result.routed_to}{stale}, which had {result.hit_tokens} tokens of the prefix; "
        f"the other had {result.other_hit_tokens}"
    )


def _print_matrix(matrix: Matrix) -> None:
    from rich.text import Text

    handlers = list(dict.fromkeys(each.scenario.handler for each in matrix.results))
    rows: dict[tuple[Trigger, Delivery], dict[Handler, CellResult]] = {}
    for each in matrix.results:
        key = (each.scenario.trigger, each.scenario.delivery)
        rows.setdefault(key, {})[each.scenario.handler] = each
    table = plain_table("trigger", "delivery", *(_HEADS[handler] for handler in handlers))
    for (trigger, delivery), cells in rows.items():
        shown: list[Text] = []
        for handler in handlers:
            told = _cell(cells[handler])
            shown.append(Text(told, style="bold red" if cells[handler].is_bug else "green"))
        table.add_row(trigger.value, delivery.value, *shown)
    print_table(table)
    console = stdout_console()
    console.print()
    for line in _findings(matrix, handlers):
        console.print(printable(line))


def _findings(matrix: Matrix, handlers: Sequence[Handler]) -> Iterator[str]:
    bugs = [each for each in matrix.results if each.is_bug]
    if bugs:
        yield f"{_cell(bugs[0])}: {_in_words(bugs[0])}."
    wipes = [each for each in matrix.results if each.scenario.trigger.wipes]
    for handler in handlers:
        mine = [each for each in wipes if each.scenario.handler is handler]
        if not mine:
            continue
        wrong = sum(each.is_bug for each in mine)
        said = "every wipe misleads the router" if wrong == len(mine) else "cured"
        if 0 < wrong < len(mine):
            said = f"{wrong} of {len(mine)} wipes still mislead the router"
        yield f"{_HEADS[handler]}: {said}."
    if any(each.scenario.aibrix_scope for each in bugs):
        yield (
            "The prompts are a LoRA's, and every purge, whoever asks for it, reaches the base "
            "model's context only: what the pod held for the LoRA stays."
        )
        return
    for trigger in dict.fromkeys(each.scenario.trigger for each in bugs):
        left = [
            each
            for each in bugs
            if each.scenario.trigger is trigger and each.scenario.handler.reconciles
        ]
        if left and trigger in _REASONS:
            lost = all(each.scenario.delivery is Delivery.LOST for each in left)
            where = f"{trigger}, lost" if lost else trigger.value
            yield f"{where}: {_REASONS[trigger]}."
    if matrix.blind is not None:
        blind = matrix.blind
        yield (
            f"A purge at sleep level 0 would be wrong: the prompt would go to {blind.routed_to}, "
            f"which has {blind.hit_tokens} tokens of it, and not to the pod that has "
            f"{blind.other_hit_tokens}."
        )
    if matrix.unreal:
        names = ", ".join(trigger.value for trigger in matrix.unreal)
        yield f"Not run, since no API makes a real engine do it: {names}."
