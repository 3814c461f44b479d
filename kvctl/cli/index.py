"""`kvctl index`: look into an index."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from kvctl.cli.completers import complete_file, complete_index, complete_pod, words
from kvctl.cli.group import command_group
from kvctl.cli.indexoptions import IndexUrl
from kvctl.cli.options import OUTPUT_OPTION
from kvctl.cli.panels import ENTRIES, OUTPUT, PROMPT
from kvctl.cli.podoptions import ContextOption
from kvctl.cli.promptoptions import Lora, Salt
from kvctl.cli.routeroptions import Router, RunningRequests, Seed

app = command_group(
    "index",
    """Look into an index: its entries, who matches a prompt.

    Examples:
      kvctl index show --index fleet.sqlite
      kvctl index match prompt.json --index capture:incident.kvcap
    """,
)


@app.command()
def show(
    index: IndexUrl = None,
    context: ContextOption = None,
    pod: Annotated[
        str | None,
        typer.Option(
            metavar="POD",
            help="Only this pod.",
            rich_help_panel=ENTRIES,
            autocompletion=complete_pod,
            show_default=False,
        ),
    ] = None,
    blocks: Annotated[
        bool,
        typer.Option(
            "--blocks", help="List them one by one, not their sums.", rich_help_panel=OUTPUT
        ),
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(help="Only this model.", rich_help_panel=ENTRIES, show_default=False),
    ] = None,
    lora: Annotated[
        str | None,
        typer.Option(
            help="Only this LoRA; empty for the base model.",
            rich_help_panel=ENTRIES,
            show_default=False,
        ),
    ] = None,
    medium: Annotated[
        str | None,
        typer.Option(
            metavar="MEDIUM",
            autocompletion=words("GPU", "CPU", "STORAGE"),
            help="Only this medium: GPU, CPU, STORAGE.",
            rich_help_panel=ENTRIES,
            show_default=False,
        ),
    ] = None,
    older_than: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="Only entries last stored longer ago than this.",
            rich_help_panel=ENTRIES,
            show_default=False,
        ),
    ] = None,
    output: Annotated[Literal["table", "json", "jsonl"], OUTPUT_OPTION] = "table",
) -> None:
    """Show what an index holds: per pod, or entry by entry with --blocks.

    --model, --lora, --medium and --older-than go with --blocks.

    Examples:
      kvctl index show --index fleet.sqlite
      kvctl index show --index fleet.sqlite --pod pod-a --blocks -o jsonl
      kvctl index show --index capture:demo:fleet
      kvctl index show --index redis://10.0.0.2:6379/0 --context prod
    """
    from kvctl.cli.indexoptions import index_of_context, key_bar, pods_of_context
    from kvctl.cli.indexview import EntryFilter, show_blocks, show_summary
    from kvctl.operate.indexes import IndexOptions, open_view

    index = index_of_context(index, context)
    pods = pods_of_context(context, index)
    with key_bar() as bar, open_view(index, IndexOptions(pods=pods, progress=bar)) as view:
        if blocks:
            wanted = EntryFilter(
                pod, model, lora, None if medium is None else medium.upper(), older_than
            )
            show_blocks(view, wanted, output)
        else:
            show_summary(view.summary(), pod, output)


@app.command()
def match(
    tokens: Annotated[
        str,
        typer.Argument(
            metavar="TOKENS|FILE",
            help="Token ids, as 1,2,3 or a JSON list, or a file of them.",
            autocompletion=complete_file,
        ),
    ],
    index: IndexUrl = None,
    context: ContextOption = None,
    model: Annotated[
        str | None,
        typer.Option(help="Model of the prompt.", rich_help_panel=PROMPT, show_default=False),
    ] = None,
    lora: Lora = None,
    salt: Salt = None,
    router: Router = "longest",
    running: RunningRequests = None,
    seed: Seed = 0,
    output: Annotated[Literal["table", "json"], OUTPUT_OPTION] = "table",
) -> None:
    """Show which pods hold how much of a prompt, and who would get it.

    Examples:
      kvctl index match prompt.json --index fleet.sqlite
      kvctl index match 1,2,3,4 --index capture:demo:fleet
      kvctl index match prompt.json --index fleet.sqlite --router aibrix \\
          --running pod-a=9
    """
    from kvctl.cli.indexoptions import index_of_context, pods_of_context
    from kvctl.cli.matchview import print_match
    from kvctl.cli.output import print_json
    from kvctl.cli.routeroptions import router_options
    from kvctl.index import Prompt
    from kvctl.operate.indexes import IndexOptions, open_view
    from kvctl.operate.prompts import parse_tokens
    from kvctl.operate.replay import match_report

    prompt = Prompt(parse_tokens(tokens), model, lora, () if salt is None else (salt,))
    index = index_of_context(index, context)
    with open_view(index, IndexOptions(pods=pods_of_context(context, index))) as view:
        report = match_report(view.match(prompt), router_options(router, running, seed))
    if output == "json":
        print_json(report.to_dict())
    else:
        print_match(report)


@app.command()
def diff(
    a: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="An index: sqlite:FILE, capture:FILE, redis://…, dynamo+http://….",
            autocompletion=complete_index,
        ),
    ],
    b: Annotated[
        str, typer.Argument(metavar="B", help="The other.", autocompletion=complete_index)
    ],
    context: ContextOption = None,
    blocks: Annotated[
        bool,
        typer.Option(
            "--blocks", help="List them one by one, not their sums.", rich_help_panel=OUTPUT
        ),
    ] = False,
    output: Annotated[Literal["table", "json", "jsonl"], OUTPUT_OPTION] = "table",
) -> None:
    """Compare two indexes.

    Exit code 3 where they differ. A router's index knows pods by their addresses: name them by a
    context. It has no times, no ranks or no groups, and then these are not compared.

    Examples:
      kvctl index diff fleet.sqlite redis://10.0.0.2:6379/0 --context prod
      kvctl index diff fleet.sqlite capture:incident.kvcap
      kvctl index diff yesterday.sqlite today.sqlite --blocks -o jsonl
    """
    from kvctl.cli.indexoptions import key_bar, pods_of_context
    from kvctl.cli.indexview import show_diff
    from kvctl.operate.diff import IndexDiff
    from kvctl.operate.indexes import IndexOptions, open_view

    with key_bar() as bar:
        options = IndexOptions(pods=pods_of_context(context, a, b), progress=bar)
        with (
            open_view(a, options) as first,
            open_view(b, options) as second,
        ):
            found = IndexDiff(first, second)
    with found:
        if show_diff(found, blocks, output):
            raise typer.Exit(3)
