"""Where streams come from."""

from __future__ import annotations

import re
from dataclasses import dataclass

_IPV4 = re.compile(r"tcp://(\d+\.){3}\d+:")


@dataclass(frozen=True)
class StreamSource:
    """One endpoint of one pod. ``rank`` counts where a batch does not name its own DP rank.

    ``events`` and ``replay`` are ZMQ endpoints as `tcp://10.0.0.7:5557`. With ``bind`` the engines
    connect to us, several perhaps: a topic `kv@<pod>@<model>` then names the pod. ``topic`` is the
    prefix subscribed to, all topics by default. ``events_via`` and ``replay_via`` are where to
    connect instead, where a local port leads to an endpoint: messages name the endpoint itself.
    """

    pod: str
    events: str
    replay: str | None = None
    rank: int = 0
    bind: bool = False
    topic: str = ""
    events_via: str | None = None
    replay_via: str | None = None

    @property
    def address(self) -> str:
        """Where the events' socket connects, or binds."""
        return self.events_via or self.events

    @property
    def replay_address(self) -> str | None:
        """Where the replay's socket connects, None where there is no replay."""
        return self.replay_via or self.replay


def speaks_ipv6(endpoint: str) -> bool:
    """Whether a socket for this endpoint should take IPv6: all but those that name an IPv4 address.

    An IPv4 address bound by a socket that takes both shows as `[::ffff:127.0.0.1]`.
    """
    return _IPV4.match(endpoint) is None
