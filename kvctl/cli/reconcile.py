"""`kvctl reconcile`: the index against what the engines show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kvctl.cli.indexoptions import IndexUrl, OwnKeys
from kvctl.cli.options import OUTPUT_OPTION, AnswerTimeout, DryRun, Interval, Yes
from kvctl.cli.panels import INDEX, OUTPUT, SAFETY, TIME
from kvctl.cli.podoptions import (
    NOT_IN_KUBERNETES,
    ContextOption,
    InKubernetes,
    PodNames,
    PodOption,
    names_kubernetes,
)

if TYPE_CHECKING:
    from kvctl.fleet import FleetSnapshot


@names_kubernetes
def reconcile(
    names: PodNames = None,
    pod: PodOption = None,
    context: ContextOption = None,
    kubernetes: InKubernetes = NOT_IN_KUBERNETES,
    index: IndexUrl = None,
    own_keys: OwnKeys = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Go on, a round every --interval.", rich_help_panel=TIME),
    ] = False,
    interval: Interval = 15.0,
    purge_suspect: Annotated[
        bool,
        typer.Option(
            "--purge-suspect",
            help="Purge also where a sleep is over and its level cannot be told.",
            rich_help_panel=SAFETY,
        ),
    ] = False,
    purge_unknown_after: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="Purge a pod whose state has been unknown for so long.",
            rich_help_panel=SAFETY,
            show_default=False,
        ),
    ] = None,
    max_purge: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=100,
            metavar="PERCENT",
            help="Refuse a plan that would purge more of the index than this.",
            rich_help_panel=SAFETY,
            show_default=False,
        ),
    ] = None,
    resync: Annotated[
        bool,
        typer.Option(
            "--resync",
            help="Rebuild a purged pod that is awake from its replay buffer.",
            rich_help_panel=INDEX,
        ),
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            metavar="PORT",
            help="With --watch: serve Prometheus metrics of what it does.",
            rich_help_panel=OUTPUT,
            show_default=False,
        ),
    ] = None,
    timeout: AnswerTimeout = 10.0,
    output: Annotated[
        Literal["table", "json", "jsonl"],
        OUTPUT_OPTION,
    ] = "table",
) -> None:
    """Find what an index holds for engines that lost it.

    It is purged, if one says yes. With --dry-run nothing is: exit code 3 on drift.

    An engine that sleeps, was restarted or is gone is seen in its metrics, whether or not its
    clear ever came. An engine that does not answer is unknown, and nothing of it is purged. With
    pods named, only these are looked at; a whole context also tells which pods are gone. So does
    a list of Kubernetes, for its namespace: what the selector leaves out there counts as gone.

    The index may be kvctl's own, or a router's in Redis or Dynamo. A router keeps no times: its
    entries of a pod are purged all together, after another look at the engine.

    -o jsonl goes with --watch: an object a round.

    Examples:
      kvctl reconcile --index fleet.sqlite --context prod --dry-run
      kvctl reconcile --index fleet.sqlite --watch --yes --max-purge 60
      kvctl reconcile --index fleet.sqlite -n serving --preset aibrix --dry-run
      kvctl reconcile --index fleet.sqlite --dry-run -o json | jq .summary
      kvctl reconcile --index redis://10.0.0.2:6379/0 --context prod --yes --resync
    """
    from kvctl.cli.indexoptions import index_of_context
    from kvctl.cli.podoptions import context_key, resolve_fleet
    from kvctl.cli.reconciling import Reconciling, ReconcilingOptions
    from kvctl.operate.reconcile import ReconcileOptions

    options = ReconcileOptions(
        dry_run=dry_run,
        purge_suspect=purge_suspect,
        purge_unknown_after=purge_unknown_after,
        max_purge=max_purge,
        timeout=timeout,
    )
    run = ReconcilingOptions(
        index=index_of_context(index, context),
        own_keys=own_keys,
        api_key=context_key(context),
        yes=yes,
        interval=interval if watch else None,
        resync=resync,
        metrics_port=metrics_port,
        output=output,
    )

    def fleet() -> FleetSnapshot:
        return resolve_fleet(names or [], pod or [], context, kubernetes)

    code = Reconciling(fleet, options, run).run()
    if code:
        raise typer.Exit(code)
