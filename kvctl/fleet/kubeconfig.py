"""A kubeconfig, or a pod's service account -> a client of that cluster's API."""

from __future__ import annotations

import logging
import os
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvctl.errors import KvctlError, UsageError
from kvctl.fleet.wording import nearest, quoted

if TYPE_CHECKING:
    from kubernetes.client import ApiClient, Configuration

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes puts what a pod may introduce itself with."""

_DEFAULT = "~/.kube/config"


class NoKubernetesError(KvctlError):
    """The Kubernetes client is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "the Kubernetes client is not installed", remedy="pip install 'kvctl[k8s]'"
        )


@dataclass(frozen=True)
class Cluster:
    """A cluster with the credentials to ask it. ``who`` names them: `kube context prod`.

    ``server`` is the API server's URL; ``namespace`` what the credentials' owner works in.
    """

    client: ApiClient
    who: str
    server: str
    namespace: str


def load_cluster(kubeconfig: Path | None = None, context: str | None = None) -> Cluster:
    """The cluster of a context, the current one by default, of a kubeconfig.

    Without ``kubeconfig`` the files that ``KUBECONFIG`` names, or `~/.kube/config`; where there is
    none, inside of a pod, the pod's service account. Raises `NoKubernetesError`, and `UsageError`
    that names the file and the context.
    """
    try:
        from kubernetes.client import ApiClient, Configuration
    except ImportError:
        raise NoKubernetesError from None
    configuration = Configuration()
    # A call that fails is told of at once; who wants to try again does so above.
    configuration.retries = False
    files = str(kubeconfig) if kubeconfig else os.environ.get("KUBECONFIG") or _DEFAULT
    found = [each for each in map(_expanded, files.split(os.pathsep)) if each.is_file()]
    if not found and kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        who, namespace = "the pod's service account", _load_service_account(configuration)
    elif not found:
        raise UsageError(
            f"there is no kubeconfig {files}", remedy="name one with --kubeconfig or KUBECONFIG"
        )
    else:
        name, namespace = _load_context(configuration, files, context)
        who = f"kube context {name}"
    return Cluster(ApiClient(configuration), who, _shown(configuration.host), namespace)


def _load_context(configuration: Configuration, files: str, wanted: str | None) -> tuple[str, str]:
    """Fill in ``configuration``; returns the context's name and namespace."""
    from kubernetes.config import list_kube_config_contexts, load_kube_config

    with _told(files):
        contexts, current = list_kube_config_contexts(files)
        named: dict[str, Any] = {each["name"]: each for each in contexts}
        chosen = named.get(wanted) if wanted is not None else current
    if chosen is None:
        raise UsageError(
            f"{files} has no kube context {quoted(wanted or '')}",
            remedy=nearest(wanted or "", named),
        )
    name: str = chosen["name"]
    with _told(f"{files}: kube context {name}"):
        load_kube_config(
            files, context=name, client_configuration=configuration, persist_config=False
        )
    return name, (chosen.get("context") or {}).get("namespace") or "default"


def _load_service_account(configuration: Configuration) -> str:
    """Fill in ``configuration``; returns the pod's own namespace."""
    from kubernetes.config.incluster_config import InClusterConfigLoader

    with _told(str(SERVICE_ACCOUNT)):
        InClusterConfigLoader(
            token_filename=str(SERVICE_ACCOUNT / "token"),
            cert_filename=str(SERVICE_ACCOUNT / "ca.crt"),
        ).load_and_set(configuration)
        return (SERVICE_ACCOUNT / "namespace").read_text().strip()


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Turn what the client raises, or only logs, over ``what`` into a `UsageError`."""
    from kubernetes.config import ConfigException
    from yaml import YAMLError

    heard = _Heard()
    logging.getLogger().addHandler(heard)
    try:
        yield
        reason = "; ".join(heard.messages)
    except (ConfigException, OSError, ValueError) as error:
        reason = str(error)
    except YAMLError:
        reason = "it is not YAML"
    except (TypeError, KeyError, AttributeError):
        reason = "it is not a kubeconfig"
    finally:
        logging.getLogger().removeHandler(heard)
    if reason:
        raise UsageError(f"{what}: {reason}", remedy="does kubectl cluster-info work with it?")


class _Heard(logging.Handler):
    """Keeps errors: the client only logs why a credential plugin failed, and goes on without."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(" ".join(record.getMessage().split()))


def _expanded(path: str) -> Path:
    return Path(os.path.expanduser(path))  # noqa: PTH111 -- Path.expanduser raises without a home


def _shown(url: str) -> str:
    """The URL without a password."""
    parts = urllib.parse.urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
