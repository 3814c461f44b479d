"""How a prefix match is shown."""

from __future__ import annotations

from kvctl.cli.output import plain_table, stdout_console
from kvctl.operate.replay import MatchReport
from kvctl.router import LONGEST
from kvctl.text import printable

_NUMBERS = ("rank", "blocks", "of", "tokens", "percent")


def print_match(match: MatchReport) -> None:
    """Who holds how much of the prompt, the best first, and who would get it."""
    table = plain_table("pod", "rank", "blocks", "of", "tokens", "percent", right=_NUMBERS)
    for pod in sorted(match.pods.values(), key=lambda each: (-each.blocks, each.pod)):
        table.add_row(
            printable(pod.pod),
            "-" if pod.rank is None else str(pod.rank),
            f"{pod.blocks:,}",
            f"{pod.prompt_blocks:,}",
            f"{pod.tokens:,}",
            f"{pod.percent}%",
        )
    console = stdout_console()
    console.print(table)
    choice = match.choice
    rule = choice.rule or LONGEST
    console.print(f"{rule}: {printable(choice.pod or 'none')}: {printable(choice.why)}")
