"""Where a stream comes from, and how it is doing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

_IPV4 = re.compile(r"tcp://(\d+\.){3}\d+:")

ReplayState: TypeAlias = Literal["none", "asking", "ok", "incomplete", "silent"]
"""`none`: there is no replay endpoint. `silent`: it never answered. `incomplete`: not whole."""


@dataclass(frozen=True)
class StreamSource:
    """One endpoint of one pod. ``rank`` counts where a batch does not name its own DP rank.

    With ``bind`` the engines connect to us, several perhaps: a topic `kv@<pod>@<model>` then names
    the pod.
    """

    pod: str
    events: str
    replay: str | None = None
    rank: int = 0
    bind: bool = False
    topic: str = ""


@dataclass(frozen=True)
class StreamStatus:
    """One stream as it is now. Counts since the start; ``last_batch_ns`` is our clock."""

    pod: str
    rank: int
    endpoint: str
    connected: bool
    replay: ReplayState
    last_seq: int | None
    batches: int
    gaps: int
    missing: int
    restarts: int
    undecodable: int
    duplicates: int
    last_batch_ns: int | None


def speaks_ipv6(endpoint: str) -> bool:
    """Whether a socket for this endpoint should take IPv6: all but those that name an IPv4 address.

    An IPv4 address bound by a socket that takes both shows as `[::ffff:127.0.0.1]`.
    """
    return _IPV4.match(endpoint) is None
