"""What stands where on a command line: the words that completion offers for its parameters.

Each function takes what typer hands over, the context of a command line that is not finished and
the word so far, and returns the words that go on from it, some with a line of help.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import typer

Words: TypeAlias = list[str | tuple[str, str]]

CAPTURES = (".kvcap", ".kvcap.zst", ".jsonl", ".jsonl.zst")
_DATABASES = (".sqlite", ".sqlite3", ".db")
_SCHEMES = (
    ("sqlite:", "kvctl's own, a file"),
    ("capture:", "a capture, replayed on the fly"),
    ("redis://", "llm-d's or kthena's"),
    ("valkey://", "llm-d's or kthena's"),
    ("dynamo+http://", "NVIDIA Dynamo's indexer"),
)
_POD_KEYS = {
    "name": "the pod's name",
    "host": "fills in the endpoints below, at the usual ports",
    "events": "where it publishes",
    "replay": "where it answers replays",
    "api": "its HTTP side",
    "model": "the model",
    "dp": "DP ranks",
    "engine": "vllm or sglang",
    "bind": "the engine connects to kvctl",
}


def words(*choices: str) -> Callable[[str], Words]:
    """A completer that offers these words."""

    def complete(incomplete: str) -> Words:
        return [each for each in choices if each.startswith(incomplete)]

    return complete


def complete_context(incomplete: str) -> Words:
    """The contexts of config.toml."""
    from kvctl.fleet import load_config
    from kvctl.text import plural

    config = load_config()
    found: Words = []
    for name, context in config.contexts.items():
        about = "in Kubernetes" if context.kubernetes else plural(len(context.pods), "pod")
        found.append((name, f"{about}, current" if name == config.current else about))
    return found


def complete_pod(context: typer.Context, incomplete: str) -> Words:
    """The pods of the command line's context that it does not name yet."""
    named = set(chain.from_iterable(context.params.get(each) or () for each in ("pods", "names")))
    known = [name for name in _pod_names(context) if name not in named]
    bare = (name.rpartition("/")[2] for name in known)
    return [*known, *(name for name in bare if incomplete and name not in known)]


def complete_running(context: typer.Context, incomplete: str) -> Words:
    """`POD=`, for the number behind it."""
    return [f"{name}=" for name in _pod_names(context)]


def complete_capture(incomplete: str) -> Words:
    """Capture files, and the recordings that ship with kvctl."""
    from kvctl.capture.demo import DEMO_PREFIX, demo_names

    demos: Words = [(f"{DEMO_PREFIX}{name}", "a recording that ships with kvctl")
                    for name in demo_names()]  # fmt: skip
    return [*_files(incomplete, CAPTURES), *demos]


def complete_capture_file(incomplete: str) -> Words:
    """Capture files that are there."""
    return [*_files(incomplete, CAPTURES)]


def complete_file(incomplete: str) -> Words:
    """Any file."""
    return [*_files(incomplete)]


def complete_index(context: typer.Context, incomplete: str) -> Words:
    """Indexes: the context's, database files, and what a URL may begin with."""
    for scheme, complete in (("sqlite:", _databases), ("capture:", complete_capture)):
        if incomplete.startswith(scheme):
            found = complete(incomplete.removeprefix(scheme))
            return [f"{scheme}{each if isinstance(each, str) else each[0]}" for each in found]
    from kvctl.fleet import load_config

    told = load_config().context(context.params.get("context")).index
    mine: Words = [(told, "the context's index")] if told and "@" not in told else []
    return [*mine, *_databases(incomplete), *_SCHEMES]


def complete_kube_context(context: typer.Context, incomplete: str) -> Words:
    """The contexts of the kubeconfig."""
    import yaml

    told = context.params.get("kubeconfig") or os.environ.get("KUBECONFIG") or "~/.kube/config"
    found: Words = []
    for path in str(told).split(os.pathsep):
        if Path(path).expanduser().is_file():
            data = yaml.safe_load(Path(path).expanduser().read_text())
            found += [str(each["name"]) for each in data.get("contexts") or ()]
    return found


def complete_spec(incomplete: str) -> Words:
    """The keys of a pod's `key=value,…` that are not there yet."""
    before, comma, _ = incomplete.rpartition(",")
    there = {pair.partition("=")[0] for pair in before.split(",")}
    return [
        (f"{before}{comma}{key}=", about) for key, about in _POD_KEYS.items() if key not in there
    ]


def _pod_names(context: typer.Context) -> list[str]:
    """The pods that the command line may mean, by its --pod, its context, or Kubernetes."""
    from kvctl.cli.podoptions import InKubernetes, in_context
    from kvctl.fleet import load_config

    told = context.params
    specs: Sequence[str] = (
        told.get("pod") or () if isinstance(told.get("pod"), (list, tuple)) else ()
    )
    names = [
        value
        for spec in specs
        for key, _, value in (part.partition("=") for part in spec.split(","))
        if key == "name"
    ]
    name = told.get("context")
    where = in_context((), (), name, InKubernetes.said(told))
    if where:
        return [*names, *(pod.name for pod in where.pods(()).pods().pods)]
    return [*names, *(pod.name for pod in load_config().context(name).pods)]


def _databases(incomplete: str) -> Words:
    return [*_files(incomplete, _DATABASES)]


def _files(incomplete: str, suffixes: Iterable[str] = ("",)) -> Iterator[str]:
    """Files with one of the suffixes, and folders, that go on from the word."""
    folder, slash, start = incomplete.rpartition("/")
    path = Path(f"{folder}{slash}" or ".").expanduser()
    endings = tuple(suffixes)
    for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
        if not entry.name.startswith(start) or entry.name.startswith(".") > start.startswith("."):
            continue
        if entry.is_dir():
            yield f"{folder}{slash}{entry.name}/"
        elif entry.name.endswith(endings):
            yield f"{folder}{slash}{entry.name}"
