"""The run of `kvctl reconcile`: plan, ask, apply; once or again and again."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvctl.cli.output import OutputFormat, plain_table, print_json, print_table, say, warn
from kvctl.errors import KvctlError, UsageError
from kvctl.fleet import Pod
from kvctl.index import IndexStoreError, SqliteIndex
from kvctl.operate.indexes import index_path
from kvctl.operate.plan import Verdict
from kvctl.operate.reconcile import Outcome, ReconcileOptions, Reconciler, Round
from kvctl.text import plural, printable

if TYPE_CHECKING:
    from rich.table import Table

_NOT_COVERED = (
    "a reset of an idle engine leaves no trace in any metric: this is not covered here. The next "
    "request to the pod brings its clear, and kvctl reset --nudge or --probe shows it"
)
_STYLES = {"purge": "bold red", "suspect": "yellow", "unknown": "yellow"}


class Reconciling:
    """One run. ``interval`` None means one round."""

    def __init__(
        self,
        pods: Sequence[Pod],
        index: str | None,
        options: ReconcileOptions,
        *,
        whole_fleet: bool,
        api_key: str | None,
        yes: bool,
        interval: float | None,
        output: OutputFormat,
    ) -> None:
        if interval is not None and not yes and not options.dry_run:
            raise UsageError("--watch purges unasked", remedy="say --yes, or --dry-run to look on")
        if interval is not None and output == "json":
            raise UsageError("--watch has no one document", remedy="use -o jsonl")
        self._path = index_path(index)
        if not self._path.exists():
            raise IndexStoreError(f"there is no index {self._path}", remedy="kvctl tail --index")
        self._pods = pods
        self._options = options
        self._whole_fleet = whole_fleet
        self._api_key = api_key
        self._yes = yes
        self._interval = interval
        self._output = output

    def run(self) -> int:
        """Run until done or interrupted; returns the exit code."""
        if self._interval is None:
            return self._round()
        code = 0
        while True:
            began = time.monotonic()
            try:
                code = self._round()
            except KvctlError as error:
                # A standing backstop outlives an index that is locked, or a plan that is refused.
                warn(str(error))
            except KeyboardInterrupt:
                return 130
            try:
                time.sleep(max(0.0, self._interval - (time.monotonic() - began)))
            except KeyboardInterrupt:
                say("stopped" + ("; drift was left at the last round" if code else ""))
                return 130

    def _round(self) -> int:
        with SqliteIndex(self._path) as index:
            reconciler = Reconciler(
                index,
                self._pods,
                self._options,
                whole_fleet=self._whole_fleet,
                api_key=self._api_key,
            )
            plan, outcomes = reconciler.plan()
            if self._options.dry_run:
                done = Round(True, outcomes)
            else:
                self._ask(outcomes)
                done = reconciler.apply(plan, outcomes)
        self._show(done)
        return done.exit_code

    def _ask(self, outcomes: Sequence[Outcome]) -> None:
        purges = (each for each in outcomes if each.decision.verdict is Verdict.PURGE)
        stale = sum(each.stale for each in purges)
        if self._yes or not stale:
            return
        if not sys.stdin.isatty():
            raise UsageError(
                "a purge wants consent, and there is no terminal to ask on",
                remedy="--yes goes ahead, --dry-run only shows",
            )
        if self._output == "table":
            print_table(_table(outcomes))
        sys.stderr.write(f"Purge {plural(stale, 'entry')} from {self._path}? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise KvctlError("nothing was purged")

    def _show(self, done: Round) -> None:
        if self._output == "json":
            print_json(done.to_dict())
            return
        if self._output == "jsonl":
            sys.stdout.write(json.dumps({"at": time.time()} | done.to_dict()) + "\n")
            sys.stdout.flush()
            return
        if self._interval is not None:
            say(time.strftime("%Y-%m-%dT%H:%M:%S"))
        print_table(_table(done.outcomes))
        words = [plural(done.stale, "stale entry")]
        if done.purged or not done.dry_run:
            words.append(f"{done.purged:,} purged")
        if done.suspect:
            words.append(f"{done.suspect:,} suspect (--purge-suspect)")
        if done.unknown:
            words.append(f"{plural(done.unknown, 'stream')} unknown")
        say(", ".join(words))
        if self._interval is None:
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
            str(decision.rank),
            decision.state,
            f"{decision.entries:,}",
            f"{each.stale:,}",
            Text(verdict, style=_STYLES.get(verdict, "")),
            printable(decision.reason),
        )
    return table
