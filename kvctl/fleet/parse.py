"""A pod as one word of a command line -> `Pod`: a whole `--pod`, or only its address."""

from __future__ import annotations

import ipaddress
import re

from kvctl.errors import UsageError
from kvctl.fleet import endpoint
from kvctl.fleet.build import build_pod
from kvctl.fleet.fields import split_fields
from kvctl.fleet.pod import API_PORTS, EVENTS_PORT, Pod
from kvctl.fleet.wording import quoted

_HTTP = ("http://", "https://")
_HOST_AND_PORT = re.compile(r"(\[[^\[\]]*\]|[^\[\]:]*):[^:]*")


def parse_pod(text: str) -> Pod:
    """A pod from `name=pod-a,events=tcp://10.0.0.7:5557,…`. Raises `UsageError`, one line.

    `name` is required, and something that says where the pod is. `host=H` stands for H's usual
    ports. Of `events`, `replay` and `api`, what is not given is assumed at the usual port of the
    same host, provided that what is given is at its usual port: else other engines may be there.
    `replay=none` and `api=none` say that there is none. With `dp=N`, rank r is at port + r of
    `events` and of `replay`; `events=A|B` lists the ranks' endpoints instead.
    """
    name, fields = split_fields(text)
    return build_pod(name, fields)


def pod_from_endpoint(text: str) -> Pod:
    """The pod at `host`, `host:5557`, `tcp://host:5557` or `http://host:8000`.

    It is named after its host, with the port where that is not the usual one. Raises `UsageError`.
    """
    try:
        if text.startswith(_HTTP):
            url = endpoint.parse_api(text)
            host, port, usual = endpoint.api_host(url), endpoint.api_port(url), API_PORTS["vllm"]
            return build_pod(_name(host, port, usual), {"api": url})
        at = endpoint.parse_endpoint(text if "://" in text else _events(text))
    except ValueError as error:
        raise UsageError(
            f"{quoted(text)} is no pod: {error}", remedy="give host, host:port or tcp://host:port"
        ) from None
    if at.scheme == "ipc":
        return build_pod(at.path.rstrip("/").rpartition("/")[2] or "ipc", {"events": str(at)})
    return build_pod(_name(at.host, at.port, EVENTS_PORT), {"events": str(at)})


def is_address(word: str) -> bool:
    """Whether a word can hardly be a pod's name, but can be where a pod is."""
    if "://" in word or word == "localhost":
        return True
    if "/" in word:
        return False
    if _HOST_AND_PORT.fullmatch(word):
        return True
    try:
        ipaddress.ip_address(word)
    except ValueError:
        return False
    return True


def _events(text: str) -> str:
    if _HOST_AND_PORT.fullmatch(text):
        return f"tcp://{text}"
    return f"tcp://{endpoint.bracketed(endpoint.parse_host(text))}:{EVENTS_PORT}"


def _name(host: str, port: int, usual: int) -> str:
    return host if port == usual and host != "*" else f"{endpoint.bracketed(host)}:{port}"
