"""Endpoints and URLs as they are written down, checked and taken apart.

Every function raises ValueError with what is wrong as a bare reason; the caller knows whose it is.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import SplitResult, urlsplit

from kvctl.fleet.wording import quoted

_HOSTNAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?")
_TCP = re.compile(r"(?P<host>\[[^\[\]]*\]|[^\[\]:]*):(?P<port>[^:]*)")

MAX_PORT = 65535
MAX_IPC_PATH = 107
"""Most bytes of a Unix socket's path (Linux `sun_path`, less its end)."""


@dataclass(frozen=True)
class Endpoint:
    """A ZMQ endpoint: `tcp` with host and port, or `ipc` with a path.

    ``host`` is bare, an IPv6 address without its brackets, `*` for every interface.
    """

    scheme: Literal["tcp", "ipc"]
    host: str = ""
    port: int = 0
    path: str = ""

    @property
    def is_wildcard(self) -> bool:
        """Whether this names every interface of a host, which one can only bind."""
        return self.scheme == "tcp" and self.host in ("*", "0.0.0.0", "::")

    def at_rank(self, rank: int) -> Endpoint:
        """The endpoint of another DP rank, by vLLM's rule: port + rank."""
        if self.scheme == "ipc":
            raise ValueError("ipc endpoints have no ports to count ranks by: list one per rank")
        if self.port + rank > MAX_PORT:
            raise ValueError(f"port {self.port} plus rank {rank} is over {MAX_PORT}")
        return replace(self, port=self.port + rank)

    def __str__(self) -> str:
        if self.scheme == "ipc":
            return f"ipc://{self.path}"
        return f"tcp://{bracketed(self.host)}:{self.port}"


def parse_endpoint(text: str) -> Endpoint:
    """A ZMQ endpoint from `tcp://host:port` or `ipc://path`."""
    _check_characters(text)
    scheme, separator, rest = text.partition("://")
    if not separator:
        raise ValueError(f"{quoted(text)} is no endpoint; expected tcp://host:port")
    if scheme == "ipc":
        if not rest:
            raise ValueError("an ipc endpoint needs a path, as in ipc:///run/kv.sock")
        if len(rest.encode()) > MAX_IPC_PATH:
            raise ValueError(f"an ipc path has at most {MAX_IPC_PATH} bytes")
        return Endpoint("ipc", path=rest)
    if scheme != "tcp":
        raise ValueError(
            f"the scheme {quoted(scheme)} is not possible here; expected tcp:// or ipc://"
        )
    match = _TCP.fullmatch(rest)
    if match is None:
        raise ValueError(f"{quoted(text)} is no endpoint; expected tcp://host:port")
    return Endpoint("tcp", parse_host(match["host"], wildcard=True), parse_port(match["port"]))


def parse_api(text: str) -> str:
    """The base URL of an HTTP API, without its last slash."""
    _check_characters(text)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError(f"{quoted(text)} is no URL; expected http://host:port") from None
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError(f"{quoted(text)} is no HTTP URL; expected http://host:port")
    if "@" in parts.netloc:
        raise ValueError("a URL with credentials; give the token in KVCTL_API_KEY instead")
    if parts.query or parts.fragment or text.endswith(("?", "#")):
        raise ValueError(f"{quoted(text)} has more than a host, a port and a path")
    if port == 0 or parts.netloc.endswith(":"):
        raise ValueError(f"a port is a number from 1 to {MAX_PORT}")
    parse_host(_host_part(parts))
    return text.rstrip("/")


def api_host(url: str) -> str:
    """The bare host of a checked API URL."""
    return parse_host(_host_part(urlsplit(url)))


def api_port(url: str) -> int:
    """The port of a checked API URL: the scheme's own where it names none."""
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def parse_host(text: str, *, wildcard: bool = False) -> str:
    """A bare host: a name, an IPv4 address, an IPv6 address in brackets or without.

    ``wildcard`` allows `*`.
    """
    if text == "*" and wildcard:
        return text
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if ":" in bare or bare != text:
        try:
            ipaddress.IPv6Address(bare)
        except ValueError:
            raise ValueError(f"{quoted(text)} is no IPv6 address") from None
        return bare
    if re.fullmatch(r"[0-9.]+", text):
        try:
            ipaddress.IPv4Address(text)
        except ValueError:
            raise ValueError(f"{quoted(text)} is no IPv4 address") from None
        return text
    if not _HOSTNAME.fullmatch(text):
        raise ValueError(f"{quoted(text)} is no host name" if text else "the host is missing")
    return text


def parse_port(text: str) -> int:
    """A port number."""
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= MAX_PORT:
        raise ValueError(f"a port is a number from 1 to {MAX_PORT}, not {quoted(text)}")
    return int(text)


def bracketed(host: str) -> str:
    """A host as it stands in front of a port."""
    return f"[{host}]" if ":" in host else host


def _host_part(parts: SplitResult) -> str:
    # Not `hostname`: that one drops the brackets, and lowers the case of a name.
    return re.sub(r":[0-9]*$", "", parts.netloc)


def _check_characters(text: str) -> None:
    if not text.isprintable() or " " in text or not text.isascii():
        raise ValueError(f"{quoted(text)} has characters that no address has")
