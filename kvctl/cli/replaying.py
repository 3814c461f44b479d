"""The run of `kvctl replay`: captures in; an index, its report, or a re-publication out."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvctl.cli.indexview import summary_table
from kvctl.cli.matchview import print_match
from kvctl.cli.output import (
    OutputFormat,
    print_json,
    say,
    stdout_console,
    warn,
)
from kvctl.cli.reading import Captures
from kvctl.cli.stepping import JsonSteps, LineSteps
from kvctl.errors import KvctlError, UsageError
from kvctl.events import Record
from kvctl.index import MemoryIndex, Policy, Prompt, Removals
from kvctl.index.policy import PURGE
from kvctl.operate.prompts import parse_hash, parse_tokens
from kvctl.operate.replay import (
    MatchReport,
    ReplayReport,
    RouterOptions,
    findings,
    match_report,
    replay,
)
from kvctl.operate.until import Until
from kvctl.text import plural, printable

if TYPE_CHECKING:
    from kvctl.report.timeline import Timeline

_COMMIT_EVERY = 20_000


@dataclass(frozen=True)
class ReplayOptions:
    """What `kvctl replay` was asked for. Times in seconds."""

    captures: tuple[str, ...]
    pods: frozenset[str]
    until: Until | None
    step: bool
    output: OutputFormat
    policy: Policy
    removals: Removals
    num_gpu_blocks: int | None
    save: str | None
    match: str | None
    match_block: str | None
    lora: str | None
    salt: str | None
    router: RouterOptions
    plot: bool
    publish: str | None
    speed: float
    wait: float
    linger: float


class Replaying:
    """One run."""

    def __init__(self, options: ReplayOptions) -> None:
        if options.output == "jsonl" and not options.step:
            raise UsageError("-o jsonl goes with --step", remedy="use -o json for the report")
        if options.save is not None and options.policy is not PURGE:
            raise UsageError("--save keeps what the engines hold", remedy="leave --policy away")
        if options.plot and (options.output != "table" or options.step):
            raise UsageError(
                "--plot draws beside the table", remedy="leave --step and -o json away"
            )
        self._options = options
        self._warnings: list[str] = []

    def run(self) -> None:
        """Read the captures and print what was asked for."""
        options = self._options
        # A prompt that cannot be read should not cost the reading of a long capture first.
        tokens = None if options.match is None else parse_tokens(options.match)
        wanted = None if options.match_block is None else parse_hash(options.match_block)
        if options.publish is not None:
            self._publish(options.publish)
            return
        index = MemoryIndex(
            policy=options.policy, removals=options.removals, lineage=wanted is not None
        )
        steps = self._steps(index)
        timeline = self._timeline(index)
        watch = steps.show if steps else timeline.see if timeline else None
        with self._saved(self._records()) as records:
            tally, elapsed = replay(records, index, until=options.until, watch=watch)
        summary = index.summary()
        for pod in sorted(options.pods - {stream.pod for stream in summary.streams}):
            self._warnings.append(f"no batch of pod {pod} in the capture")
        if options.until is not None and not tally.batches:
            self._warnings.append("no batch up to --until in the capture")
        self._warnings += findings(tally, summary, num_gpu_blocks=options.num_gpu_blocks)
        report = ReplayReport(tally, summary, tuple(self._warnings), elapsed)
        match = None
        if tokens is not None:
            salts = () if options.salt is None else (options.salt,)
            match = match_report(
                index.match(Prompt(tokens, None, options.lora, salts)), options.router
            )
        elif wanted is not None:
            matches = index.match_block(wanted)
            if matches is None:
                raise KvctlError(
                    f"no pod holds the block {options.match_block} at the end of the replay",
                    remedy="--until stops earlier; kvctl replay --step shows the hashes",
                )
            match = match_report(matches, options.router)
        self._print(report, match)
        if timeline is not None:
            from kvctl.cli.plotting import print_plots

            print()
            print_plots(timeline)

    def _print(self, report: ReplayReport, match: MatchReport | None) -> None:
        if self._options.output != "table":
            if self._options.output == "json":
                more = {} if match is None else {"match": match.to_dict()}
                print_json(report.to_dict() | more)
            return
        _print_report(report)
        if match is not None:
            print()
            print_match(match)

    def _timeline(self, index: MemoryIndex) -> Timeline | None:
        if not self._options.plot:
            return None
        from kvctl.cli.plotting import check_plots
        from kvctl.report.timeline import Timeline

        check_plots()
        return Timeline(index)

    def _steps(self, index: MemoryIndex) -> LineSteps | JsonSteps | None:
        if not self._options.step:
            return None
        if self._options.output == "table":
            return LineSteps(index, stdout_console(), interactive=sys.stdin.isatty())
        return JsonSteps(index)

    @contextmanager
    def _saved(self, records: Iterator[Record]) -> Iterator[Iterator[Record]]:
        """The same records, taken in by the index that is to be kept, if one is."""
        options = self._options
        if options.save is None:
            yield records
            return
        from kvctl.operate.indexes import IndexOptions, open_store, shown_url

        with open_store(options.save, IndexOptions(removals=options.removals)) as store:

            def taken_in() -> Iterator[Record]:
                for number, record in enumerate(records):
                    if options.until is None or options.until.admits(record):
                        store.apply(record)
                    if number % _COMMIT_EVERY == 0:
                        store.commit()
                    yield record

            yield taken_in()
            store.commit()
            entries = store.summary().entries
            self._warnings += store.remarks()
        say(f"{shown_url(options.save)}: {plural(entries, 'entry')} kept")

    def _records(self) -> Iterator[Record]:
        """The captures' records in stream order, one capture after the other."""
        captures = Captures(self._options.captures, self._options.pods)
        yield from captures.records()
        self._warnings += captures.warnings

    def _publish(self, base: str) -> None:
        from kvctl.events import Batch, Undecodable
        from kvctl.operate.republish import Republisher, stream_endpoints

        options = self._options
        streams = {
            (record.wire.pod, record.wire.rank)
            for record in self._records()
            if isinstance(record, (Batch, Undecodable))
        }
        if not streams:
            raise KvctlError("the capture holds no batch to publish")
        republisher = Republisher(stream_endpoints(base, streams), options.speed)
        try:
            for each in republisher.endpoints:
                say(f"{each.pod} rank {each.rank}: events {each.events}, replay {each.replay}")
            for each in republisher.wait_for_subscribers(options.wait):
                warn(f"nobody subscribed to {each.events} within {options.wait:g} s")
            sent = republisher.publish(
                record
                for record in self._records()
                if options.until is None or options.until.admits(record)
            )
            say(f"{plural(sent, 'batch')} published")
            time.sleep(options.linger)
        finally:
            republisher.close()


def _print_report(report: ReplayReport) -> None:
    """The report for people: pods, then events, then what is wrong."""
    console = stdout_console()
    console.print(summary_table(report.index.streams))
    tally = report.tally
    counts = ", ".join(f"{count:,} {name}" for name, count in tally.events.items())
    console.print()
    console.print(f"{plural(tally.batches, 'batch')}: {counts}")
    console.print(
        f"{plural(report.index.blocks, 'distinct block')} in {report.index.entries:,} entries; "
        f"{plural(tally.blocks_stored, 'block')} stored in {report.elapsed_s:.2f} s"
    )
    for gap in tally.gaps:
        state = "recovered" if gap.recovered else "lost"
        console.print(
            f"gap: {printable(gap.pod)} rank {gap.rank}: seq {gap.from_seq} to {gap.to_seq} "
            f"{state}{_because(gap.reason)}"
        )
    for restart in tally.restarts:
        console.print(
            f"restart: {printable(restart.pod)} rank {restart.rank}{_because(restart.reason)}"
        )
    for warning in report.warnings:
        console.print(f"warning: {printable(warning)}", style="yellow")


def _because(reason: str) -> str:
    return f": {printable(reason)}" if reason else ""
