"""The run of `kvctl reconcile`: plan, ask, apply; once or again and again."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from kvctl.cli.indexoptions import key_bar
from kvctl.cli.output import OutputFormat, plain_table, print_json, print_table, say, warn
from kvctl.errors import KvctlError, UsageError
from kvctl.fleet import FleetSnapshot, Pod
from kvctl.index import IndexStore, PurgeableIndex
from kvctl.operate.indexes import IndexOptions, kind_of, open_purgeable, shown_url
from kvctl.operate.memory import FileMemory, Memory, PassingMemory
from kvctl.operate.plan import Verdict
from kvctl.operate.reconcile import Outcome, ReconcileOptions, Reconciler, Round
from kvctl.operate.resync import Resync, resync
from kvctl.text import plural, printable

if TYPE_CHECKING:
    from rich.table import Table

    from kvctl.operate.metrics import ReconcileMetrics

_NOT_COVERED = (
    "a reset of an idle engine leaves no trace in any metric: this is not covered here. The next "
    "request to the pod brings its clear, and kvctl reset --nudge or --probe shows it"
)
_STYLES = {"purge": "bold red", "suspect": "yellow", "unknown": "yellow"}


@dataclass(frozen=True)
class ReconcilingOptions:
    """How it runs. ``interval`` is in seconds, None for one round."""

    index: str | None
    own_keys: bool = False
    api_key: str | None = None
    yes: bool = False
    interval: float | None = None
    resync: bool = False
    metrics_port: int | None = None
    output: OutputFormat = "table"


class Reconciling:
    """One run; `run` returns the exit code. ``fleet`` is looked at anew with every round."""

    def __init__(
        self,
        fleet: Callable[[], FleetSnapshot],
        options: ReconcileOptions,
        run: ReconcilingOptions,
    ) -> None:
        if run.interval is not None and not run.yes and not options.dry_run:
            raise UsageError("--watch purges unasked", remedy="say --yes, or --dry-run to look on")
        if run.interval is not None and run.output == "json":
            raise UsageError("--watch has no one document", remedy="use -o jsonl")
        if run.interval is None and run.metrics_port is not None:
            raise UsageError("--metrics-port goes with --watch", remedy="one round is soon over")
        if run.own_keys and kind_of(run.index) != "redis":
            raise UsageError("--own-keys is for an index in Redis", remedy="leave it away")
        self._fleet = fleet
        self._options = options
        self._run = run
        self._where = shown_url(run.index)
        self._metrics: ReconcileMetrics | None = None
        self._passing: PassingMemory | None = None

    def run(self) -> int:
        """Run until done or interrupted; returns the exit code."""
        if self._run.interval is None:
            return self._round()
        if self._run.metrics_port is not None:
            from kvctl.operate.metrics import ReconcileMetrics

            self._metrics = ReconcileMetrics(self._run.metrics_port)
            say(f"metrics at http://0.0.0.0:{self._metrics.port}/metrics")
        try:
            return self._watch(self._run.interval)
        finally:
            if self._metrics is not None:
                self._metrics.close()

    def _watch(self, interval: float) -> int:
        code, rounds = 0, 0
        try:
            while True:
                began = time.monotonic()
                try:
                    code = self._round()
                    rounds += 1
                except KvctlError as error:
                    if not rounds and isinstance(error, UsageError):
                        raise
                    # A standing backstop outlives an index that is locked or gone for a while,
                    # and a plan that is refused.
                    warn(str(error))
                    if self._metrics is not None:
                        self._metrics.failed()
                time.sleep(max(0.0, interval - (time.monotonic() - began)))
        except KeyboardInterrupt:
            say("stopped" + ("; drift was left at the last round" if code else ""))
            return 130

    def _round(self) -> int:
        fleet = self._fleet()
        with key_bar() as bar:
            options = IndexOptions(pods=fleet.pods, own_keys=self._run.own_keys, progress=bar)
            with open_purgeable(self._run.index, options) as index:
                done = self._reconcile(index, fleet)
        if self._metrics is not None:
            self._metrics.done(done, time.time)
        self._show(done)
        return done.exit_code

    def _reconcile(self, index: PurgeableIndex, fleet: FleetSnapshot) -> Round:
        reconciler = Reconciler(
            index,
            self._memory(index),
            # Pods that are there, of which nothing can be asked, are not gone.
            [*fleet.pods, *(Pod(each.name, ()) for each in fleet.skipped)],
            self._options,
            whole_fleet=fleet.complete,
            speaks_of=fleet.speaks_of,
            api_key=self._run.api_key,
            rebuild=self._rebuild(index),
        )
        plan, outcomes = reconciler.plan()
        if self._options.dry_run:
            return reconciler.look_on(plan, outcomes)
        self._ask(outcomes)
        return reconciler.apply(plan, outcomes)

    def _memory(self, index: PurgeableIndex) -> Memory:
        kept_there = kind_of(self._run.index) == "sqlite" or self._run.own_keys
        memory = cast(Memory, index) if kept_there else FileMemory(self._where)
        if not self._options.dry_run:
            return memory
        # A dry run leaves nothing behind, but its rounds know of each other.
        if self._passing is None:
            self._passing = PassingMemory(memory)
        self._passing.before = memory
        return self._passing

    def _rebuild(self, index: PurgeableIndex) -> Callable[[Pod], Resync] | None:
        if not self._run.resync:
            return None
        if not isinstance(index, IndexStore):
            raise UsageError(
                f"{self._where} cannot be rebuilt by kvctl", remedy="leave --resync away"
            )
        store = index
        return lambda pod: resync(store, pod, timeout=self._options.timeout)

    def _ask(self, outcomes: Sequence[Outcome]) -> None:
        purges = (each for each in outcomes if each.decision.verdict is Verdict.PURGE)
        stale = sum(each.stale for each in purges)
        if self._run.yes or not stale:
            return
        if not sys.stdin.isatty():
            raise UsageError(
                "a purge wants consent, and there is no terminal to ask on",
                remedy="--yes goes ahead, --dry-run only shows",
            )
        if self._run.output == "table":
            print_table(_table(outcomes))
        sys.stderr.write(f"Purge {plural(stale, 'entry')} from {self._where}? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise KvctlError("nothing was purged")

    def _show(self, done: Round) -> None:
        if self._run.output == "json":
            print_json(done.to_dict())
            return
        if self._run.output == "jsonl":
            sys.stdout.write(json.dumps({"at": time.time()} | done.to_dict()) + "\n")
            sys.stdout.flush()
            return
        if self._run.interval is not None:
            say(time.strftime("%Y-%m-%dT%H:%M:%S"))
        print_table(_table(done.outcomes))
        words = [plural(done.stale, "stale entry")]
        if done.purged or not done.dry_run:
            words.append(f"{done.purged:,} purged")
        if done.suspect:
            words.append(f"{done.suspect:,} suspect (--purge-suspect)")
        if done.unknown:
            words.append(f"{plural(done.unknown, 'stream')} unknown")
        for each in done.resynced:
            lost = f", {plural(each.lost, 'older batch')} not in its buffer" if each.lost else ""
            words.append(f"{each.pod} rebuilt from {plural(each.batches, 'batch')}{lost}")
        say(", ".join(words))
        for remark in done.not_rebuilt:
            warn(remark)
        if self._run.interval is None:
            say(_NOT_COVERED)


def _table(outcomes: Sequence[Outcome]) -> Table:
    from rich.text import Text

    numbers = ("rank", "entries", "stale")
    table = plain_table("pod", "rank", "state", "entries", "stale", "verdict", "why", right=numbers)
    for each in outcomes:
        decision = each.decision
        verdict = decision.verdict.value
        table.add_row(
            printable(decision.pod),
            "-" if decision.rank is None else str(decision.rank),
            decision.state,
            f"{decision.entries:,}",
            f"{each.stale:,}",
            Text(verdict, style=_STYLES.get(verdict, "")),
            printable(decision.reason),
        )
    return table
