"""`kvctl sim`: simulated engines to try everything on."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from kvctl.cli.completers import words
from kvctl.cli.options import OUTPUT_OPTION
from kvctl.cli.panels import ENGINE, PODS


def sim(
    pods: Annotated[
        int,
        typer.Option(min=1, max=64, help="How many: pod-a, pod-b, …", rich_help_panel=PODS),
    ] = 2,
    blocks: Annotated[
        int, typer.Option(min=2, help="KV blocks of an engine.", rich_help_panel=ENGINE)
    ] = 1024,
    block_size: Annotated[
        int, typer.Option(min=1, help="Tokens of a block.", rich_help_panel=ENGINE)
    ] = 16,
    ranks: Annotated[
        int,
        typer.Option("--dp", min=1, max=4, help="DP ranks of a pod.", rich_help_panel=ENGINE),
    ] = 1,
    model: Annotated[str, typer.Option(help="The model's name.", rich_help_panel=ENGINE)] = "tiny",
    wire: Annotated[
        str,
        typer.Option(
            metavar="VERSION",
            autocompletion=words("0.9.1", "0.11.0", "0.18.0", "0.24.0", "0.32"),
            help="The vLLM version to behave as: 0.9.1, 0.18, 0.24, …",
            rich_help_panel=ENGINE,
        ),
    ] = "0.32",
    byte_hashes: Annotated[
        bool,
        typer.Option(
            "--byte-hashes",
            help="Block hashes as 32 bytes instead of ints.",
            rich_help_panel=ENGINE,
        ),
    ] = False,
    port_base: Annotated[
        int,
        typer.Option(
            min=0,
            max=64000,
            metavar="PORT",
            help="Fixed ports: the n-th pod's API at PORT + 10 n, its events behind (rank r at "
            "+ 1 + r), its replay at + 5 + r. Default: free ports.",
            rich_help_panel=PODS,
            show_default=False,
        ),
    ] = 0,
    output: Annotated[Literal["table", "json"], OUTPUT_OPTION] = "table",
) -> None:
    """Run simulated vLLM engines until stopped.

    They speak real HTTP and real ZMQ. They take /v1/completions with token ids or text, the control
    endpoints (/reset_prefix_cache, /sleep, /wake_up, /pause, …), and faults under /sim: drop,
    stall, slow, hold, release, oom-reset, restart, sleep-rank, flush, die; /sim/cache tells what an
    engine truly holds.

    Examples:
      kvctl sim --pods 2 --port-base 9000
      kvctl sim --wire 0.18 -o json | jq -r '.pods[].events[]'
    """
    from kvctl.cli.simulating import simulate
    from kvctl.sim import SimConfig

    configs = [
        SimConfig(
            name=_pod_name(number),
            model=model,
            blocks=blocks,
            block_size=block_size,
            wire=wire,
            ranks=ranks,
            int_hashes=not byte_hashes,
        )
        for number in range(pods)
    ]
    raise typer.Exit(simulate(configs, port_base, output))


def _pod_name(number: int) -> str:
    """pod-a to pod-z, then pod-aa and so on."""
    name = ""
    number += 1
    while number:
        number, letter = divmod(number - 1, 26)
        name = chr(ord("a") + letter) + name
    return f"pod-{name}"
