"""Many streams in one background thread, their records handed over in order."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Mapping

import zmq

from kvctl.events import Batch, Position, Record, Undecodable
from kvctl.stream.endpoint import Endpoint, ReplayOptions
from kvctl.stream.errors import StreamError
from kvctl.stream.replay import TIMEOUT_S, TRIES, StreamKey
from kvctl.stream.source import StreamSource
from kvctl.stream.status import StreamStatus

MAX_QUEUED = 20_000
"""Records waiting for the caller, each 4 KiB of payload counting as one more. Beyond, live batches
stay with ZMQ: its high-water mark then drops, which is a gap like any other: noticed, and filled
from the replay."""

_POLL_S = 0.05


class StreamReader:
    """Reads the sources while the caller works on what was read.

    Sockets belong to one thread: libzmq's own I/O keeps receiving meanwhile, so that a caller who
    is slow loses nothing until the high-water mark. ``replay_timeout`` (seconds) and
    ``replay_tries`` bound the wait for a replay that does not answer. ``positions`` names the batch
    behind which each (pod, DP rank) goes on. Without ``tokens`` the events' token ids are left
    away (`decode_batch`). Raises `StreamError` for an endpoint that cannot be used.
    """

    def __init__(
        self,
        sources: Iterable[StreamSource],
        *,
        use_replay: bool = True,
        since_seq: int = 0,
        max_queued: int = MAX_QUEUED,
        replay_timeout: float = TIMEOUT_S,
        replay_tries: int = TRIES,
        positions: Mapping[StreamKey, Position] | None = None,
        tokens: bool = True,
    ) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.setsockopt(zmq.MAX_SOCKETS, 65535)
        self._options = ReplayOptions(use_replay, since_seq, replay_timeout, replay_tries)
        self._positions = dict(positions or {})
        self._tokens = tokens
        self._records: queue.SimpleQueue[list[Record]] = queue.SimpleQueue()
        self._queued = 0
        self._max_queued = max_queued
        # Guards what the caller may look at: the endpoints, and how many records are queued.
        self._lock = threading.Lock()
        self._endpoints: dict[StreamSource, Endpoint] = {}
        self._leaving: list[Endpoint] = []
        self._poller = zmq.Poller()
        self._polled: dict[zmq.Socket[bytes], Endpoint] = {}
        self._stopping = threading.Event()
        self._fault: BaseException | None = None
        try:
            for source in sources:
                self.add_source(source)
        except BaseException:
            self._close()
            raise
        self._thread = threading.Thread(target=self._run, name="kvctl-streams", daemon=True)
        self._thread.start()

    def __enter__(self) -> StreamReader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def read(self, timeout: float) -> list[Record]:
        """The next records, in order within each stream; empty after ``timeout`` seconds.

        After `stop` what was received before it can still be read.
        """
        try:
            records = (
                self._records.get(timeout=timeout) if timeout > 0 else self._records.get_nowait()
            )
        except queue.Empty:
            if self._fault is not None:
                raise self._fault from None
            return []
        with self._lock:
            self._queued -= _weight(records)
        return records

    def stop(self) -> None:
        """Stop receiving, declare what is missing, and close every socket."""
        self._stopping.set()
        self._thread.join()

    close = stop

    def add_source(self, source: StreamSource) -> None:
        """Read one more source; one that is read already is left as it is.

        Raises `StreamError` for an endpoint that cannot be used.
        """
        with self._lock:
            if self._stopping.is_set():
                raise StreamError(f"pod {source.pod}: the reader has been stopped")
            if source not in self._endpoints:
                # A socket may be made here and used there: the lock is the fence libzmq asks for.
                self._endpoints[source] = Endpoint(
                    self._context,
                    source,
                    self._options,
                    time.monotonic(),
                    self._positions,
                    tokens=self._tokens,
                )

    def remove_source(self, source: StreamSource) -> None:
        """Stop reading a source, if it is read; what it has received can still be read."""
        with self._lock:
            endpoint = self._endpoints.pop(source, None)
            if endpoint is not None:
                self._leaving.append(endpoint)

    def settled(self) -> bool:
        """Whether all is connected and read, and no replay or hole is awaited."""
        with self._lock:
            return self._queued == 0 and all(each.settled for each in self._endpoints.values())

    def statuses(self) -> list[StreamStatus]:
        """The status of every stream, by pod and rank."""
        with self._lock:
            found = [status for each in self._endpoints.values() for status in each.statuses()]
        return sorted(found, key=lambda status: (status.pod, status.rank))

    def unconnected(self) -> list[tuple[str, str]]:
        """Endpoints without a connection now, each with what is the matter."""
        with self._lock:
            return [
                (source.events, each.connection.fault)
                for source, each in self._endpoints.items()
                if not each.connection.connected
            ]

    def wait_connected(self, timeout: float) -> list[str]:
        """Wait until all are connected; returns the endpoints that are not after ``timeout`` s."""
        deadline = time.monotonic() + timeout
        while True:
            left = [endpoint for endpoint, _ in self.unconnected()]
            if not left or time.monotonic() >= deadline or self._stopping.wait(_POLL_S):
                return left

    @property
    def endpoint_count(self) -> int:
        """How many endpoints are read."""
        return len(self._endpoints)

    def _run(self) -> None:
        next_tick = 0.0
        try:
            while not self._stopping.is_set():
                ready: set[Endpoint] | None = self._wait()
                now = time.monotonic()
                if now >= next_tick:
                    next_tick = now + _POLL_S
                    ready = None
                self._step(ready, now)
            with self._lock:
                self._leaving += self._endpoints.values()
            self._let_go()
        except BaseException as error:  # whatever it is, the caller must hear of it
            self._fault = error
        finally:
            self._stopping.set()
            self._close()

    def _wait(self) -> set[Endpoint]:
        """Wait for a message; returns the endpoints that have one."""
        with self._lock:
            reads = self._queued < self._max_queued
            wanted = {
                socket: endpoint
                for endpoint in self._endpoints.values()
                for socket in endpoint.sockets(read=reads)
            }
        if wanted.keys() != self._polled.keys():
            self._poller = zmq.Poller()
            for socket in wanted:
                self._poller.register(socket, zmq.POLLIN)
        self._polled = wanted
        return {wanted[socket] for socket, _ in self._poller.poll(int(_POLL_S * 1000))}

    def _step(self, ready: set[Endpoint] | None, now: float) -> None:
        """Let the endpoints that are ready step, all of them if None is given."""
        self._let_go()
        with self._lock:
            endpoints = [
                each for each in self._endpoints.values() if ready is None or each in ready
            ]
            reads = self._queued < self._max_queued
        for endpoint in endpoints:
            # Not over all of them: the caller may want a status meanwhile. But what a step brings
            # is handed over with it: `settled` must not come between.
            with self._lock:
                self._hand_over(endpoint.step(now, read=reads))

    def _let_go(self) -> None:
        with self._lock:
            while self._leaving:
                endpoint = self._leaving.pop()
                self._hand_over(endpoint.finish())
                endpoint.close()

    def _hand_over(self, records: list[Record]) -> None:
        if records:
            self._queued += _weight(records)
            self._records.put(records)

    def _close(self) -> None:
        with self._lock:
            for endpoint in [*self._endpoints.values(), *self._leaving]:
                endpoint.close()
        self._context.destroy(linger=0)


def _weight(records: list[Record]) -> int:
    return sum(
        1 + (len(record.wire.payload) >> 12 if isinstance(record, (Batch, Undecodable)) else 0)
        for record in records
    )
