"""The options by which every command names its pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

if TYPE_CHECKING:
    from kvctl.fleet import Pod

_PANEL = "Which pods"

PodNames: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[POD]...",
        help="Pods by name (from --pod or a context) or by address. Default: all that are known.",
        show_default=False,
    ),
]

PodOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--pod",
        metavar="KEY=VALUE,…",
        help="A pod: name=, host= or events=, replay=, api=, and model=, dp=, engine=, bind=.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]

ContextOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--context",
        envvar="KVCTL_CONTEXT",
        help="A context of config.toml.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]


def resolve_pods(names: list[str], specs: list[str], context: str | None) -> tuple[Pod, ...]:
    """The pods a command line means.

    --pod specs and the context's pods together are what is known. Names pick among them; a name
    that none has but that is an address stands for the pod there. Without names: all --pod specs,
    or else the whole context. Raises `UsageError` when that leaves nothing.
    """
    from kvctl.errors import UsageError
    from kvctl.fleet import load_config, merge_pods, parse_pod, select_pods

    flags = [parse_pod(spec) for spec in specs]
    known = merge_pods(flags, load_config().context(context).pods)
    pods = select_pods(known if names or not flags else flags, names, addresses=True)
    if not pods:
        raise UsageError(
            "no pod is named",
            remedy="give an address, --pod name=…,host=…, or a context of config.toml",
        )
    return pods


def context_key(context: str | None) -> str | None:
    """The Bearer token for engines: the environment's, or the context's key file."""
    from kvctl.engine import api_key
    from kvctl.fleet import load_config

    return api_key(load_config().context(context).api_key_file)
