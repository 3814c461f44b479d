"""What routers call the pods of a fleet: their addresses, mostly."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from kvctl.fleet import Pod


def pod_names(pods: Sequence[Pod]) -> dict[str, str]:
    """Everything that can only mean one of the pods -> its name.

    A pod may be known by its name without the namespace, by its host or that host's address, by
    host and port of its API, or by the endpoint of its events. What two pods share means neither.
    The local ports that a pod may be reached by are nobody's name for it.
    """
    meanings: dict[str, set[str]] = {}
    for pod in pods:
        for word in _words(pod):
            meanings.setdefault(word, set()).add(pod.name)
    return {word: names.pop() for word, names in meanings.items() if len(names) == 1}


def _words(pod: Pod) -> Iterator[str]:
    yield pod.name
    yield pod.name.rpartition("/")[2]
    for stream in pod.streams:
        yield stream.events
        yield from _hosts(pod, stream.events)
    if pod.api is not None:
        port = urlsplit(pod.api).port
        for host in _hosts(pod, pod.api):
            yield host
            if port is not None:
                yield f"{host}:{port}"


def _hosts(pod: Pod, url: str) -> Iterator[str]:
    host = urlsplit(url).hostname
    if not host or host == "*":
        return
    yield host
    try:
        ipaddress.ip_address(host)
    except ValueError:
        # What stands for the host of a pod that is forwarded and has no IP is no name of a host.
        if not pod.is_forwarded:
            yield from _addresses(host)


def _addresses(host: str) -> set[str]:
    try:
        return {str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return set()  # a name that means nothing here says nothing about the pod
