"""How a prefix match is shown."""

from __future__ import annotations

from kvctl.cli.output import plain_table, stdout_console
from kvctl.operate.replay import MatchReport
from kvctl.text import printable

_NUMBERS = ("rank", "blocks", "of", "tokens", "percent")


def print_match(match: MatchReport) -> None:
    """Who holds how much of the prompt, the best first, and who would get it."""
    table = plain_table("pod", "rank", "blocks", "of", "tokens", "percent", right=_NUMBERS)
    for pod in sorted(match.pods.values(), key=lambda each: (-each.blocks, each.pod)):
        table.add_row(
            printable(pod.pod),
            str(pod.rank),
            f"{pod.blocks:,}",
            f"{pod.prompt_blocks:,}",
            f"{pod.tokens:,}",
            f"{pod.percent}%",
        )
    console = stdout_console()
    console.print(table)
    console.print(f"longest prefix: {printable(match.choice.pod or 'none')}: {match.choice.why}")
