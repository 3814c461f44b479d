"""`kvctl reset`, `kvctl sleep`, `kvctl wake`: drive engines and verify that the index followed."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from kvctl.cli.completers import complete_index, words
from kvctl.cli.options import OUTPUT_OPTION, DryRun, Yes
from kvctl.cli.panels import ENGINE, INDEX, SAFETY, TIME
from kvctl.cli.podoptions import (
    NOT_IN_KUBERNETES,
    ContextOption,
    InKubernetes,
    PodNames,
    PodOption,
    names_kubernetes,
)

Nudge = Annotated[
    bool,
    typer.Option(
        "--nudge",
        help="Where no clear comes, send a completion of one token so that the engine steps.",
        rich_help_panel=SAFETY,
    ),
]
Probe = Annotated[
    bool,
    typer.Option(
        "--probe",
        help="Send the same tokens before and after, and read the engine's count of cached ones.",
        rich_help_panel=SAFETY,
    ),
]
Purge = Annotated[
    bool,
    typer.Option(
        "--purge",
        help="Remove the entries that a missing clear leaves behind.",
        rich_help_panel=INDEX,
    ),
]
Index = Annotated[
    str | None,
    typer.Option(
        help="The index that must follow, and that --purge purges, as for kvctl index. Default: "
        "one built on the spot from the pod's stream and replay.",
        metavar="URL",
        rich_help_panel=INDEX,
        autocompletion=complete_index,
        show_default=False,
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        min=0, metavar="SECONDS", help="How long to wait for the clear.", rich_help_panel=TIME
    ),
]
CallTimeout = Annotated[
    float,
    typer.Option(
        min=0.1,
        metavar="SECONDS",
        help="How long the engine may take to answer the call.",
        rich_help_panel=TIME,
    ),
]
Output = Annotated[Literal["table", "json"], OUTPUT_OPTION]


@names_kubernetes
def reset(
    pods: PodNames = None,
    pod: PodOption = None,
    context: ContextOption = None,
    kubernetes: InKubernetes = NOT_IN_KUBERNETES,
    reset_running: Annotated[
        bool,
        typer.Option(
            "--reset-running",
            help="Preempt running requests, whose blocks are held (vLLM 0.12+).",
            rich_help_panel=ENGINE,
        ),
    ] = False,
    reset_external: Annotated[
        bool,
        typer.Option(
            "--reset-external",
            help="Reset a connector's cache too (vLLM 0.13+).",
            rich_help_panel=ENGINE,
        ),
    ] = False,
    nudge: Nudge = False,
    probe: Probe = False,
    purge: Purge = False,
    index: Index = None,
    timeout: Timeout = 5.0,
    call_timeout: CallTimeout = 60.0,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = "table",
) -> None:
    """Reset prefix caches, and verify that the index followed.

    An idle engine says nothing of its reset before its next step: then the verdict is `stale`,
    exit code 3, and --nudge or --purge is the cure.

    Examples:
      kvctl reset 10.0.0.7 --nudge --yes
      kvctl reset pod-a --probe --nudge --yes -o json | jq .verdict
      kvctl reset pod-a pod-b --context prod --dry-run
    """
    from kvctl.cli.controlling import control
    from kvctl.operate.control import ControlOptions

    options = ControlOptions(
        action="reset",
        reset_running=reset_running,
        reset_external=reset_external,
        nudge=nudge,
        probe=probe,
        purge=purge,
        timeout=timeout,
        call_timeout=call_timeout,
    )
    _exit(
        control(
            pods or [],
            pod or [],
            context,
            options,
            kubernetes=kubernetes,
            index=index,
            yes=yes,
            dry_run=dry_run,
            output=output,
        )
    )


@names_kubernetes
def sleep(
    pods: PodNames = None,
    pod: PodOption = None,
    context: ContextOption = None,
    kubernetes: InKubernetes = NOT_IN_KUBERNETES,
    level: Annotated[
        int,
        typer.Option(
            min=0,
            max=2,
            metavar="0|1|2",
            autocompletion=words("0", "1", "2"),
            rich_help_panel=ENGINE,
            help="1 offloads the weights, 2 discards them; 0 only pauses and keeps the cache.",
        ),
    ] = 1,
    mode: Annotated[
        Literal["abort", "wait", "keep"] | None,
        typer.Option(
            help="What becomes of running requests (vLLM 0.17+).",
            rich_help_panel=ENGINE,
            show_default=False,
        ),
    ] = None,
    probe: Probe = False,
    purge: Purge = False,
    index: Index = None,
    timeout: Timeout = 5.0,
    call_timeout: CallTimeout = 120.0,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = "table",
) -> None:
    """Put engines to sleep, and verify that the index followed.

    A sleeping engine does not step, so its clear comes only after it wakes: whoever drives the
    sleep has to purge (--purge), or the router goes on sending prompts to it.

    Examples:
      kvctl sleep 10.0.0.7 --purge --yes
      kvctl sleep pod-a --index redis://10.0.0.2:6379/0 --purge --yes
      kvctl sleep pod-a --level 2 --dry-run
    """
    from kvctl.cli.controlling import control
    from kvctl.operate.control import ControlOptions

    options = ControlOptions(
        action="sleep",
        level=level,
        mode=mode,
        probe=probe,
        purge=purge,
        timeout=timeout,
        call_timeout=call_timeout,
    )
    _exit(
        control(
            pods or [],
            pod or [],
            context,
            options,
            kubernetes=kubernetes,
            index=index,
            yes=yes,
            dry_run=dry_run,
            output=output,
        )
    )


@names_kubernetes
def wake(
    pods: PodNames = None,
    pod: PodOption = None,
    context: ContextOption = None,
    kubernetes: InKubernetes = NOT_IN_KUBERNETES,
    tags: Annotated[
        list[str] | None,
        typer.Option(
            "--tag",
            metavar="PART",
            autocompletion=words("weights", "kv_cache", "scheduling"),
            help="Wake only this part: weights, kv_cache, scheduling.",
            rich_help_panel=ENGINE,
        ),
    ] = None,
    nudge: Nudge = False,
    purge: Purge = False,
    index: Index = None,
    timeout: Timeout = 5.0,
    call_timeout: CallTimeout = 120.0,
    dry_run: DryRun = False,
    output: Output = "table",
) -> None:
    """Wake engines, and say what the index should hold now.

    It should hold nothing from before the sleep.

    Examples:
      kvctl wake 10.0.0.7 --nudge
      kvctl wake pod-a --tag weights --tag kv_cache -o json
    """
    from kvctl.cli.controlling import control
    from kvctl.operate.control import ControlOptions

    options = ControlOptions(
        action="wake",
        tags=tuple(tags or ()),
        nudge=nudge,
        purge=purge,
        timeout=timeout,
        call_timeout=call_timeout,
    )
    _exit(
        control(
            pods or [],
            pod or [],
            context,
            options,
            kubernetes=kubernetes,
            index=index,
            yes=True,
            dry_run=dry_run,
            output=output,
        )
    )


def _exit(code: int) -> None:
    if code:
        raise typer.Exit(code)
