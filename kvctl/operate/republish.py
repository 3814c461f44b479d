"""Publishes the batches of a capture again, on real sockets, to feed another indexer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kvctl.errors import UsageError
from kvctl.events import Batch, Record, Undecodable
from kvctl.stream import ReplayablePublisher


@dataclass(frozen=True)
class Published:
    """One stream's endpoints while its batches are published."""

    pod: str
    rank: int
    events: str
    replay: str


def stream_endpoints(base: str, streams: Iterable[tuple[str, int]]) -> list[Published]:
    """An event and a replay endpoint for every stream: the port of ``base``, +1, +2, …

    Raises `UsageError` where ``base`` is no `tcp://address:port`.
    """
    address, _, port = base.rpartition(":")
    if not address.startswith("tcp://") or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--publish {base!r} is no endpoint", remedy="give one like tcp://*:5557")
    first = int(port)
    published = []
    for number, (pod, rank) in enumerate(sorted(streams)):
        events = first + 2 * number if first else 0
        replay = events + 1 if first else 0
        published.append(Published(pod, rank, f"{address}:{events}", f"{address}:{replay}"))
    return published


class Republisher:
    """One PUB and ROUTER pair a stream; batches go out verbatim, in recorded or chosen tempo.

    ``speed`` 1 is the recorded tempo, 10 ten times as fast, 0 as fast as it goes.
    """

    def __init__(self, endpoints: Iterable[Published], speed: float) -> None:
        self._speed = speed
        self._publishers: dict[tuple[str, int], ReplayablePublisher] = {}
        self._first_ns = 0
        self._began = 0.0
        try:
            for each in endpoints:
                self._publishers[each.pod, each.rank] = ReplayablePublisher(
                    each.events, each.replay
                )
        except BaseException:
            self.close()
            raise

    @property
    def endpoints(self) -> list[Published]:
        """Where each stream is published, ports as bound."""
        return [
            Published(pod, rank, publisher.events_endpoint, publisher.replay_endpoint or "")
            for (pod, rank), publisher in self._publishers.items()
        ]

    def wait_for_subscribers(self, timeout: float) -> list[Published]:
        """Wait until every stream has a subscriber; returns those that had none in time."""
        deadline = time.monotonic() + timeout
        return [
            endpoint
            for endpoint, publisher in zip(self.endpoints, self._publishers.values(), strict=True)
            if not publisher.wait_for_subscriber(max(0.0, deadline - time.monotonic()))
        ]

    def publish(
        self, records: Iterable[Record], sleep: Callable[[float], None] = time.sleep
    ) -> int:
        """Publish every batch of the records, undecodable ones too; returns how many."""
        sent = 0
        for record in records:
            if not isinstance(record, (Batch, Undecodable)):
                continue
            wire = record.wire
            if self._speed > 0:
                self._keep_tempo(wire.recv_ns, sleep)
            self._publishers[wire.pod, wire.rank].publish(wire.topic, wire.seq, wire.payload)
            sent += 1
        return sent

    def _keep_tempo(self, recv_ns: int, sleep: Callable[[float], None]) -> None:
        if not self._first_ns:
            self._first_ns, self._began = recv_ns, time.monotonic()
        due = self._began + (recv_ns - self._first_ns) / 1e9 / self._speed
        if (wait := due - time.monotonic()) > 0:
            sleep(wait)

    def close(self) -> None:
        """Stop serving."""
        for publisher in self._publishers.values():
            publisher.close()
