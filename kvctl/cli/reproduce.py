"""`kvctl reproduce-2287`: the bug, its half fix and its whole fix, proven."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from kvctl.cli.completers import complete_capture_file, complete_pod
from kvctl.cli.options import OUTPUT_OPTION, Yes
from kvctl.cli.panels import OUTPUT, PODS
from kvctl.cli.podoptions import ContextOption
from kvctl.cli.routeroptions import Router
from kvctl.reproduce.scenario import Delivery, Handler, Trigger

_CELLS = "Cells"
_HANDLERS = [each for each in Handler if each is not Handler.GATEWAY]


def reproduce(
    trigger: Annotated[
        list[Trigger] | None,
        typer.Option(
            metavar="TRIGGER",
            help=f"What wipes pod A: {', '.join(Trigger)}.",
            rich_help_panel=_CELLS,
            show_default=False,
        ),
    ] = None,
    delivery: Annotated[
        list[Delivery] | None,
        typer.Option(help="What becomes of the clear.", rich_help_panel=_CELLS, show_default=False),
    ] = None,
    handler: Annotated[
        list[Handler] | None,
        typer.Option(
            metavar="HANDLER",
            help=f"What the router does about it: {', '.join(_HANDLERS)}. blind also purges at "
            "sleep level 0.",
            rich_help_panel=_CELLS,
            show_default=False,
        ),
    ] = None,
    aibrix_scope: Annotated[
        bool,
        typer.Option(
            "--aibrix-scope",
            help="Every purge reaches the base model's context only, as AIBrix's does, and the "
            "prompts are a LoRA's.",
            rich_help_panel=_CELLS,
        ),
    ] = False,
    router: Router = "aibrix",
    seed: Annotated[
        int, typer.Option(help="Prompts and random choices follow it.", rich_help_panel=_CELLS)
    ] = 0,
    pod_a: Annotated[
        str | None,
        typer.Option(
            metavar="POD",
            autocompletion=complete_pod,
            help="An engine to wipe: a pod of the context, an address, or as --pod elsewhere.",
            rich_help_panel=PODS,
            show_default=False,
        ),
    ] = None,
    pod_b: Annotated[
        str | None,
        typer.Option(
            metavar="POD",
            autocompletion=complete_pod,
            help="The other engine.",
            rich_help_panel=PODS,
            show_default=False,
        ),
    ] = None,
    context: ContextOption = None,
    gateway: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A real gateway in front of both: the pods' counters tell which it chose.",
            rich_help_panel=PODS,
            show_default=False,
        ),
    ] = None,
    gateway_settle: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="How long to leave the gateway for taking events in.",
            rich_help_panel=PODS,
        ),
    ] = 2.0,
    yes: Yes = False,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Tell each cell step by step.", rich_help_panel=OUTPUT),
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            autocompletion=complete_capture_file,
            help="Keep the events of the one cell as a capture.",
            rich_help_panel=OUTPUT,
            show_default=False,
        ),
    ] = None,
    expect: Annotated[
        Literal["fixed", "bug"] | None,
        typer.Option(
            help="A check for CI: exit code 3 where the cells show otherwise.",
            rich_help_panel=OUTPUT,
            show_default=False,
        ),
    ] = None,
    output: Annotated[Literal["table", "json"], OUTPUT_OPTION] = "table",
) -> None:
    """Show AIBrix issue #2287, and what each fix is worth.

    Pod A holds the prefix of a prompt, pod B half of it. A loses its cache. Where does the router
    send the prompt, and what did the pod have of it, by its own counters? Everything runs here on
    simulated engines, over real HTTP and ZMQ, unless --pod-a and --pod-b name real ones.

    Examples:
      kvctl reproduce-2287
      kvctl reproduce-2287 --trigger reset-idle --delivery delivered --explain
      kvctl reproduce-2287 --handler event+reconcile+sync --trigger sleep-1 \\
          --expect fixed
      kvctl reproduce-2287 --pod-a 10.0.0.7 --pod-b 10.0.0.8 --yes \\
          --trigger sleep-1
    """
    from kvctl.cli.reproducing import Reproducing, ReproducingOptions
    from kvctl.reproduce.matrix import Choices

    choices = Choices(
        triggers=tuple(trigger or ()),
        deliveries=tuple(delivery or ()),
        handlers=tuple(handler or ()),
        aibrix_scope=aibrix_scope,
        router=router,
        seed=seed,
    )
    options = ReproducingOptions(
        pod_a=pod_a,
        pod_b=pod_b,
        context=context,
        gateway=gateway,
        gateway_settle=gateway_settle,
        yes=yes,
        explain=explain,
        save=save,
        expect=expect,
        output=output,
    )
    code = Reproducing(choices, options).run()
    if code:
        raise typer.Exit(code)
