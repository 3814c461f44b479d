"""The run of `kvctl report`: captures in; a page, a document or a table out."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from kvctl.cli.output import json_text, plain_table, print_table, say, stdout_console
from kvctl.cli.reading import Captures
from kvctl.errors import UsageError
from kvctl.index import Removals
from kvctl.operate.until import Until
from kvctl.report.analysis import Report, analyse
from kvctl.report.words import engine, hour, span
from kvctl.text import printable

_PAGE_ENDINGS = (".html", ".htm")
_DOCUMENT_ENDING = ".json"


@dataclass(frozen=True)
class ReportOptions:
    """What `kvctl report` was asked for. ``since`` is engine time."""

    captures: tuple[str, ...]
    output: str
    force: bool
    plot: bool
    pods: frozenset[str]
    since: float | None
    until: Until | None
    removals: Removals
    num_gpu_blocks: int | None


def run_report(options: ReportOptions) -> None:
    """Read the captures and write the report where it was asked for."""
    form, path = _target(options.output)
    if options.plot:
        if path is None and form != "table":
            raise UsageError(
                "--plot and the report would both go to stdout", remedy="-o FILE.html keeps it"
            )
        from kvctl.cli.plotting import check_plots

        check_plots()
    if path is not None:
        from kvctl.report.file import check_target

        # A long capture should not be read for nothing.
        check_target(path, force=options.force)
    report = _analysed(options)
    if form == "table":
        _print_table(report)
    elif path is None:
        sys.stdout.write(_content(report, form))
    else:
        from kvctl.report.file import write_private

        write_private(path, _content(report, form), force=options.force)
        say(f"{path}: {report.headline}")
    if options.plot:
        from kvctl.cli.plotting import print_plots

        if path is None:
            print()
        print_plots(report.timeline)


def _target(output: str) -> tuple[str, Path | None]:
    """The form, and the file if it is to be one."""
    if output in ("table", "json"):
        return output, None
    if output in ("-", "html"):
        return "html", None
    path = Path(output)
    ending = path.suffix.lower()
    if ending in _PAGE_ENDINGS:
        return "html", path
    if ending == _DOCUMENT_ENDING:
        return "json", path
    raise UsageError(
        f"-o {output!r} is neither FILE.html nor FILE.json",
        remedy="or - for the page on stdout, json, table",
    )


def _analysed(options: ReportOptions) -> Report:
    captures = Captures(options.captures, options.pods)
    return analyse(
        captures.records(),
        options.captures,
        since=options.since,
        until=options.until,
        removals=options.removals,
        num_gpu_blocks=options.num_gpu_blocks,
        pods=options.pods,
        warnings=lambda: captures.warnings,
    )


def _content(report: Report, form: str) -> str:
    if form == "json":
        from kvctl.report.document import document

        return json_text(document(report))
    from kvctl.report.page import page

    return page(report)


def _print_table(report: Report) -> None:
    """The findings for people."""
    console = stdout_console()
    timeline = report.timeline
    if timeline.begin is not None and timeline.end is not None:
        console.print(span(timeline.begin, timeline.end))
    console.print(printable(report.headline))
    if not report.findings:
        return
    console.print()
    table = plain_table("severity", "pod", "time", "finding")
    for each in report.findings:
        table.add_row(
            each.severity,
            "-" if each.pod is None else engine(each.pod, each.rank),
            "-" if each.begin is None else hour(each.begin),
            each.what,
        )
    print_table(table)
    console.print()
    console.print("-o FILE.html makes the page: what each finding means, what to do, charts.")
