"""How the checks of `kvctl doctor` are shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from kvctl.cli.output import OutputFormat, marked_table, print_json, say, stdout_console
from kvctl.operate.doctor import Check, Status
from kvctl.text import printable

_MARKS = {
    Status.PASS: ("✓", "green"),
    Status.WARN: ("!", "yellow"),
    Status.FAIL: ("✗", "bold red"),
    Status.SKIP: ("·", "dim"),
}
_NAME_WIDTH = 14


def show_checks(checks: Sequence[Check], output: OutputFormat) -> bool:
    """Print the checks; returns whether one failed."""
    counts = Counter(check.status for check in checks)
    if output == "json":
        summary = {status.value: counts[status] for status in Status}
        print_json({"checks": [check.to_dict() for check in checks], "summary": summary})
    else:
        for pod, group in groupby(checks, key=lambda check: check.pod):
            _print_group(pod, list(group))
        told = ", ".join(f"{counts[status]} {status}" for status in Status if counts[status])
        say(told)
    return bool(counts[Status.FAIL])


def _print_group(pod: str | None, checks: Sequence[Check]) -> None:
    from rich.text import Text

    console = stdout_console()
    console.print("the fleet" if pod is None else printable(pod), style="bold")
    several = len({check.rank for check in checks if check.rank is not None}) > 1
    table = marked_table(_NAME_WIDTH)
    for check in checks:
        mark, style = _MARKS[check.status]
        rank = f" (rank {check.rank})" if several and check.rank is not None else ""
        table.add_row(f"  {check.name}", Text(mark, style=style), printable(check.detail) + rank)
        if check.remedy and check.status in (Status.WARN, Status.FAIL):
            table.add_row("", Text("→", style="dim"), Text(printable(check.remedy), style="dim"))
    console.print(table)
