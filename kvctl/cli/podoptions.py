"""The options by which every command names its pods."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from kvctl.cli.completers import (
    complete_context,
    complete_file,
    complete_kube_context,
    complete_pod,
    complete_spec,
)
from kvctl.cli.panels import KUBERNETES, PODS

if TYPE_CHECKING:
    from kvctl.fleet import (
        Context,
        FleetFollower,
        FleetSnapshot,
        KubernetesContext,
        Pod,
        SkippedPod,
    )
    from kvctl.fleet.forwards import Forwards
    from kvctl.fleet.kubernetes import KubernetesPods

_TOLD = 10

PodNames: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="POD",
        help="Pods by name (from --pod or a context) or by address. Default: all that are known.",
        autocompletion=complete_pod,
        show_default=False,
    ),
]

PodOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--pod",
        metavar="KEY=VALUE,…",
        help="A pod: name=, host= or events=, replay=, api=, and model=, dp=, engine=, bind=.",
        rich_help_panel=PODS,
        autocompletion=complete_spec,
        show_default=False,
    ),
]

ContextOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--context",
        envvar="KVCTL_CONTEXT",
        help="A context of config.toml.",
        rich_help_panel=PODS,
        autocompletion=complete_context,
        show_default=False,
    ),
]


@dataclass(frozen=True)
class InKubernetes:
    """The Kubernetes options of a command line; false where none of them is given.

    Each field is an option of a command that `names_kubernetes`.
    """

    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            help="Pods of this namespace. Default: the kube context's.",
            rich_help_panel=KUBERNETES,
            show_default=False,
        ),
    ] = None
    all_namespaces: Annotated[
        bool,
        typer.Option(
            "--all-namespaces", "-A", help="Pods of all namespaces.", rich_help_panel=KUBERNETES
        ),
    ] = False
    selector: Annotated[
        str | None,
        typer.Option(
            "--selector",
            "-l",
            metavar="LABELS",
            help="Pods with these labels, as for kubectl: app=vllm,tier!=test.",
            rich_help_panel=KUBERNETES,
            show_default=False,
        ),
    ] = None
    preset: Annotated[
        Literal["aibrix", "llm-d"] | None,
        typer.Option(
            "--preset",
            help="Pods as this router labels them, with the ports it expects.",
            rich_help_panel=KUBERNETES,
            show_default=False,
        ),
    ] = None
    kube_context: Annotated[
        str | None,
        typer.Option(
            "--kube-context",
            help="A context of the kubeconfig. Default: its current one.",
            rich_help_panel=KUBERNETES,
            autocompletion=complete_kube_context,
            show_default=False,
        ),
    ] = None
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            "--kubeconfig",
            help="The kubeconfig. Default: KUBECONFIG, or ~/.kube/config, or inside of a pod its "
            "service account.",
            rich_help_panel=KUBERNETES,
            autocompletion=complete_file,
            show_default=False,
        ),
    ] = None
    port_forward: Annotated[
        bool,
        typer.Option(
            "--port-forward",
            help="Reach the pods through the API server, as kubectl port-forward does.",
            rich_help_panel=KUBERNETES,
        ),
    ] = False
    _opened: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)
    """At most one `Forwards`: the local ports, shared with what `over` makes of it."""

    @classmethod
    def said(cls, words: Mapping[str, Any]) -> InKubernetes:
        """What the values of a command line say, by the options' names; others are left alone."""
        told = {name: words.get(name) for name in _options()}
        return cls(**{name: value for name, value in told.items() if value is not None})

    def __bool__(self) -> bool:
        return self != NOT_IN_KUBERNETES

    def pods(self, names: Sequence[str]) -> KubernetesPods:
        """Where these pods are listed and watched. Raises `KvctlError`."""
        from kvctl.errors import UsageError
        from kvctl.fleet import PRESETS
        from kvctl.fleet.kubernetes import KubernetesOptions, KubernetesPods
        from kvctl.fleet.presets import PLAIN

        if self.namespace is not None and self.all_namespaces:
            raise UsageError("--namespace and --all-namespaces exclude each other")
        if not (names or self.selector or self.preset):
            raise UsageError(
                "nothing says which pods of the namespace are engines",
                remedy="--selector LABELS, --preset aibrix or llm-d, or their names",
            )
        return KubernetesPods(
            KubernetesOptions(
                namespace=self.namespace,
                all_namespaces=self.all_namespaces,
                selector=self.selector,
                kube_context=self.kube_context,
                kubeconfig=self.kubeconfig,
                preset=PRESETS[self.preset] if self.preset else PLAIN,
                port_forward=self.port_forward,
            )
        )

    def over(self, context: KubernetesContext) -> InKubernetes:
        """What a context says, but for what the command line says."""
        told = {name: value for name in _options() if (value := getattr(self, name))}
        known = context.told()
        if self.namespace or self.all_namespaces:
            known.pop("namespace", None)
            known.pop("all_namespaces", None)
        both = InKubernetes(**(known | told))
        object.__setattr__(both, "_opened", self._opened)
        return both

    def forwards(self, pods: KubernetesPods) -> Forwards | None:
        """The local ports of this command line's pods, None without --port-forward.

        They are the same every time, until `close`. Raises `KvctlError`.
        """
        if not self.port_forward:
            return None
        if not self._opened:
            self._opened.append(_open_forwards(pods))
        forwards: Forwards = self._opened[0]
        forwards.use(pods.cluster)
        return forwards

    def close(self) -> None:
        """Close the local ports, if any were opened."""
        while self._opened:
            self._opened.pop().close()


NOT_IN_KUBERNETES = InKubernetes()


def _options() -> dict[str, Any]:
    """The options' names, with their defaults."""
    return {each.name: each.default for each in fields(InKubernetes) if each.init}


def _open_forwards(pods: KubernetesPods) -> Forwards:
    from kvctl.cli.output import warn
    from kvctl.errors import KvctlError

    try:
        from kvctl.fleet.forwards import Forwards
    except ImportError as error:
        raise KvctlError(
            f"--port-forward needs the package {error.name}", remedy="pip install 'kvctl[k8s]'"
        ) from None
    return Forwards(pods.cluster, warn)


def names_kubernetes(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `InKubernetes` in the place of its parameter ``kubernetes``.

    A short option that the command has itself stays the command's.
    """
    signature = inspect.signature(command, eval_str=True)
    taken = {
        word
        for each in signature.parameters.values()
        for option in getattr(each.annotation, "__metadata__", ())
        for word in getattr(option, "param_decls", None) or ()
    }
    hints = inspect.get_annotations(InKubernetes, eval_str=True)
    options = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=_without(hints[name], taken),
        )
        for name, default in _options().items()
    ]

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        kubernetes = InKubernetes.said({each.name: arguments.pop(each.name) for each in options})
        try:
            command(**arguments, kubernetes=kubernetes)
        finally:
            kubernetes.close()

    parameters: list[inspect.Parameter] = []
    for each in signature.parameters.values():
        expanded = options if each.name == "kubernetes" else [each]
        parameters += [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in expanded]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _without(hint: Any, taken: set[str]) -> Any:
    """An option's annotation without the words that are taken."""
    (option,) = hint.__metadata__
    if not taken.intersection(option.param_decls):
        return hint
    left = copy(option)
    left.param_decls = tuple(word for word in option.param_decls if word not in taken)
    return Annotated[hint.__origin__, left]


def resolve_pods(
    names: list[str],
    specs: list[str],
    context: str | None,
    kubernetes: InKubernetes = NOT_IN_KUBERNETES,
) -> tuple[Pod, ...]:
    """The pods of `resolve_fleet`."""
    return resolve_fleet(names, specs, context, kubernetes).pods


def resolve_fleet(
    names: list[str],
    specs: list[str],
    context: str | None,
    kubernetes: InKubernetes = NOT_IN_KUBERNETES,
) -> FleetSnapshot:
    """The pods a command line means; complete where they are all there are.

    --pod specs and the context's pods together are what is known; where Kubernetes is asked, by
    the command line or by the context, its pods in place of the context's. Names pick among them;
    a name that none has but that is an address stands for the pod there. Without names: all --pod
    specs, and what Kubernetes has; or else the whole context. Raises `KvctlError`, also when that
    leaves nothing.
    """
    from kvctl.errors import UsageError
    from kvctl.fleet import FleetSnapshot, load_config, merge_pods, parse_pod, select_pods

    whole = not names and not specs
    chosen = load_config().context(context)
    kubernetes = _in(chosen, names, specs, kubernetes)
    if kubernetes:
        flags = parse_pods(specs, kubernetes)
        source = kubernetes.pods(names)
        fleet = source.pods()
        known = merge_pods(flags, fleet.pods)
        direct = not kubernetes.port_forward
        pods = select_pods(known, names, addresses=direct, skipped=fleet.skipped)
        if not names:
            _tell_skipped(fleet.skipped)
        if not pods:
            raise _none_in(source.where)
        forwards = kubernetes.forwards(source)
        if forwards is not None:
            told = [pod for pod in pods if pod not in flags]
            forwards.keep(told)
            pods = tuple(forwards.reach(pod) if pod in told else pod for pod in pods)
        return FleetSnapshot(pods, fleet.skipped, fleet.complete and whole, fleet.namespace)
    flags = [parse_pod(spec) for spec in specs]
    known = merge_pods(flags, chosen.pods)
    pods = select_pods(known if names or not flags else flags, names, addresses=True)
    if not pods:
        raise UsageError(
            "no pod is named",
            remedy="give an address, --pod name=…,host=…, or a context of config.toml",
        )
    return FleetSnapshot(pods, complete=whole)


def in_context(
    names: Sequence[str],
    specs: Sequence[str],
    context: str | None,
    kubernetes: InKubernetes = NOT_IN_KUBERNETES,
) -> InKubernetes:
    """Where in Kubernetes the pods of a command line are: by its options, and by its context.

    Nowhere, if the command line tells of every pod itself. Raises `UsageError`.
    """
    from kvctl.fleet import load_config

    return _in(load_config().context(context), names, specs, kubernetes)


def _in(
    context: Context, names: Sequence[str], specs: Sequence[str], kubernetes: InKubernetes
) -> InKubernetes:
    from kvctl.fleet import is_address, parse_pod

    found = context.kubernetes
    if found is None:
        return kubernetes
    if not kubernetes and (names or specs):
        told = {parse_pod(spec).name for spec in specs}
        if all(name in told or is_address(name) for name in names):
            return kubernetes
    return kubernetes.over(found)


def parse_pods(specs: Sequence[str], kubernetes: InKubernetes) -> list[Pod]:
    """The pods of --pod options beside those of Kubernetes. Raises `UsageError`."""
    from kvctl.errors import UsageError
    from kvctl.fleet import parse_pod

    pods = [parse_pod(spec) for spec in specs]
    for pod in pods:
        if pod.bind and kubernetes.port_forward:
            raise UsageError(
                f"pod {pod.name} connects to kvctl (bind=true), and --port-forward leads from here "
                "to the pods",
                remedy="leave one of the two away",
            )
    return pods


def follow_pods(names: list[str], kubernetes: InKubernetes, *, wait: bool) -> FleetFollower:
    """The pods in Kubernetes that a command line means, followed as they come and go.

    The caller closes the follower's watch. With ``wait`` there may be none yet; otherwise raises
    `KvctlError` for that, and for a name that no pod has.
    """
    from kvctl.fleet import FleetFollower, select_pods

    source = kubernetes.pods(names)
    forwards = kubernetes.forwards(source)
    watch = source.watch()
    try:
        follower = FleetFollower(watch, names, forwards)
        if not names:
            _tell_skipped(follower.skipped)
        elif not wait:
            select_pods(follower.pods, names, skipped=follower.skipped)
        if not follower.pods and not wait:
            raise _none_in(source.where)
    except BaseException:
        watch.close()
        raise
    return follower


def context_key(context: str | None) -> str | None:
    """The Bearer token for engines: the environment's, or the context's key file."""
    from kvctl.engine import api_key
    from kvctl.fleet import load_config

    return api_key(load_config().context(context).api_key_file)


def _none_in(where: str) -> Exception:
    from kvctl.errors import KvctlError

    return KvctlError(
        f"no pod in {where} can be used", remedy="see what is there: kubectl get pods --show-labels"
    )


def _tell_skipped(skipped: Sequence[SkippedPod]) -> None:
    from kvctl.cli.output import say
    from kvctl.text import plural

    for each in skipped[:_TOLD]:
        say(f"{each.name} is left out: {each.reason}")
    if len(skipped) > _TOLD:
        say(f"and {plural(len(skipped) - _TOLD, 'more pod')} left out")
