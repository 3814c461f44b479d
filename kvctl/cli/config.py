"""`kvctl config`: the contexts of config.toml."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from kvctl.cli.completers import complete_context, complete_file, complete_index, complete_spec
from kvctl.cli.group import command_group
from kvctl.cli.options import OUTPUT_OPTION
from kvctl.cli.podoptions import NOT_IN_KUBERNETES, InKubernetes, names_kubernetes

app = command_group(
    "config",
    """Look at and change config.toml, whose contexts name fleets.

    Examples:
      kvctl config view
      kvctl config set-pod name=pod-a,host=10.0.0.7 --context prod
    """,
)

_CONTEXT = "Context"


@app.command()
def view(
    output: Annotated[Literal["table", "json"], OUTPUT_OPTION] = "table",
) -> None:
    """Show the contexts and their pods.

    Examples:
      kvctl config view
      kvctl config view -o json | jq '.contexts | keys'
    """
    from kvctl.cli.configview import print_config
    from kvctl.fleet import load_config

    print_config(load_config(), output)


@app.command("use-context")
def use(
    context: Annotated[
        str,
        typer.Argument(
            metavar="CONTEXT", help="A context of config.toml.", autocompletion=complete_context
        ),
    ],
) -> None:
    """Make a context the one that holds where none is named.

    Examples:
      kvctl config use-context prod
    """
    from kvctl.cli.output import say
    from kvctl.fleet import use_context

    config = use_context(context)
    say(f"{config.path}: the current context is {context}")


@app.command("set-context")
@names_kubernetes
def put_context(
    context: Annotated[
        str,
        typer.Argument(
            metavar="CONTEXT",
            help="The context, made if need be.",
            autocompletion=complete_context,
        ),
    ],
    kubernetes: InKubernetes = NOT_IN_KUBERNETES,
    index: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The index to look into where none is named.",
            rich_help_panel=_CONTEXT,
            autocompletion=complete_index,
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="The model of pods that name none.", rich_help_panel=_CONTEXT, show_default=False
        ),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            help="A file with the Bearer token for the engines.",
            rich_help_panel=_CONTEXT,
            autocompletion=complete_file,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Say where a context finds its pods, its index and its token.

    A context finds its pods in Kubernetes, or lists them: kvctl config set-pod. What is not named
    stays as it is; an empty text takes it away.

    Examples:
      kvctl config set-context prod --namespace serving --preset aibrix
      kvctl config set-context lab -l app=vllm --kube-context lab
    """
    from kvctl.cli.output import say
    from kvctl.fleet import config_path, set_context

    words: dict[str, str | None] = {"index": index, "model": model}
    if api_key_file is not None:
        words["api-key-file"] = _absolute(api_key_file)
    done = set_context(
        context,
        {key: value for key, value in words.items() if value is not None},
        _kubernetes_words(kubernetes),
    )
    where = f": {done.kubernetes.flags()}" if done.kubernetes is not None else ""
    say(f"{config_path()}: context {context}{where}")


@app.command("set-pod")
def put(
    pod: Annotated[
        str,
        typer.Argument(
            metavar="KEY=VALUE,…",
            help="The pod, as --pod takes it: name=, host=, …",
            autocompletion=complete_spec,
        ),
    ],
    context: Annotated[
        str | None,
        typer.Option(
            "--context",
            envvar="KVCTL_CONTEXT",
            help="The context to put it in, made if need be. Default: the current one.",
            rich_help_panel=_CONTEXT,
            autocompletion=complete_context,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Add a pod to a context, or change it.

    Examples:
      kvctl config set-pod name=pod-a,host=10.0.0.7,model=tiny --context prod
    """
    from kvctl.cli.output import say
    from kvctl.errors import UsageError
    from kvctl.fleet import load_config, set_pod

    config = load_config()
    name = context or config.current
    if not name:
        raise UsageError("no context is current", remedy="name one with --context")
    done = set_pod(name, pod)
    say(f"{config.path}: context {name} has pod {done.name}")


def _kubernetes_words(kubernetes: InKubernetes) -> dict[str, str | bool]:
    """What the options say, under the keys of a context's `kubernetes` table."""
    words: dict[str, str | bool] = {}
    if kubernetes.namespace is not None:
        words |= {"namespace": kubernetes.namespace, "all-namespaces": False}
    if kubernetes.all_namespaces:
        words |= {"namespace": "", "all-namespaces": True}
    for key, value in (
        ("selector", kubernetes.selector),
        ("preset", kubernetes.preset),
        ("kube-context", kubernetes.kube_context),
    ):
        if value is not None:
            words[key] = value
    if kubernetes.port_forward:
        words["port-forward"] = True
    if kubernetes.kubeconfig is not None:
        words["kubeconfig"] = _absolute(kubernetes.kubeconfig)
    return words


def _absolute(path: Path) -> str:
    """The path as it holds from any folder; an empty one stays empty."""
    return "" if path == Path() else str(path.expanduser().absolute())
