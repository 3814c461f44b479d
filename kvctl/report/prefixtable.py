"""The part of the page about shared prefixes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvctl.events import hash_text
from kvctl.index import PrefixRun, PrefixTree
from kvctl.report.markup import Markup, join, tag
from kvctl.report.tables import scrolled, table
from kvctl.report.words import engine, name
from kvctl.text import plural

_MOST_HOLDERS = 4
_BAR = 190


def prefix_section(tree: PrefixTree, pods: set[str]) -> Iterator[Markup]:
    """What the pods have in common at the end."""
    yield tag("h2", "The biggest shared prefixes")
    if not tree.runs:
        yield tag(
            "p",
            "At the end no two pods hold the same first blocks, and no prefix forks. "
            + spread_words(tree.spread),
        )
        return
    deepest = max(run.end for run in tree.runs)
    left_out = tree.shared - len(tree.runs)
    yield tag(
        "p",
        "Runs of leading blocks that several pods hold at the end, or that fork into several "
        "continuations: most blocks times pods times continuations first, those behind another "
        f"below it. {spread_words(tree.spread)}",
        class_="under",
    )
    yield scrolled(
        "Table: the biggest shared prefixes",
        table(
            "The bar shows where the run is between the first block and the deepest shared one; "
            "kvctl replay CAPTURE --match-block HASH tells who holds the whole prefix."
            + (f" {left_out:,} smaller ones are not shown." if left_out else ""),
            ("Blocks", "Depth", "Blocks in it", "Tokens up to it", "Pods", "Then", "Last block"),
            (
                (
                    f"{'↳ ' * _level(tree.runs, place)}{run.begin + 1} to {run.end}",
                    _bar(run, deepest),
                    f"{run.blocks:,}",
                    f"{run.end * run.block_size:,}",
                    _holders(run, len(pods)),
                    continuation(run),
                    _last(run),
                )
                for place, run in enumerate(tree.runs)
            ),
            right=("Blocks in it", "Tokens up to it"),
            nowrap=("Blocks",),
            wide=("Pods",),
        ),
    )


def spread_words(spread: Mapping[int, int]) -> str:
    """How many blocks are held by how many."""
    said = [
        f"{plural(blocks, 'block')} by {'one' if holders == 1 else f'{holders:,}'}"
        for holders, blocks in spread.items()
    ]
    shown = said if len(said) <= 6 else [*said[:3], "…", *said[-2:]]
    return f"Of the distinct blocks that a prompt can match, {', '.join(shown)}." if said else ""


def continuation(run: PrefixRun) -> str:
    """What comes behind the run."""
    if run.continuations > 1:
        return f"forks into {run.continuations:,}"
    return "at fewer pods" if run.continuations else "ends"


def _level(runs: tuple[PrefixRun, ...], place: int) -> int:
    above, level = runs[place].above, 0
    while above is not None and level < 8:
        above, level = runs[above].above, level + 1
    return level


def _bar(run: PrefixRun, deepest: int) -> Markup:
    left, right = run.begin / deepest * _BAR, run.end / deepest * _BAR
    return tag(
        "svg",
        tag("rect", x=0, y=4, width=_BAR, height=4, class_="z"),
        tag("rect", x=0, y=4, width=left, height=4, class_="y"),
        tag("rect", x=left, y=1, width=max(2.0, right - left), height=10, class_="x"),
        viewBox=f"0 0 {_BAR} 12",
        aria_hidden="true",
        class_="bar",
    )


def _holders(run: PrefixRun, pods: int) -> Markup:
    names = [engine(pod, rank) for pod, rank in run.holders[:_MOST_HOLDERS]]
    more = len(run.holders) - len(names)
    count = len({pod for pod, _rank in run.holders})
    return join(
        tag("strong", f"{count:,} of {pods:,}"),
        f": {', '.join(names)}" + (f" and {more:,} more" if more else ""),
    )


def _last(run: PrefixRun) -> Markup:
    lora = f" under {name(run.lora)}" if run.lora is not None else ""
    return join(tag("code", hash_text(run.last)), lora)
