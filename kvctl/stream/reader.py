"""Many streams in one background thread, their records handed over in order."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Mapping

import zmq

from kvctl.events import Batch, Position, Record, Undecodable
from kvctl.stream.endpoint import Endpoint
from kvctl.stream.source import StreamSource, StreamStatus

MAX_QUEUED = 20_000
"""Records waiting for the reader, each 4 KiB of payload counting as one more. Beyond, live batches
stay with ZMQ: its high-water mark then drops, which is a gap like any other: noticed, and filled
from the replay."""

_POLL_MS = 50


class StreamReader:
    """Reads the sources while the caller works on what was read.

    Sockets belong to one thread: libzmq's own I/O keeps receiving meanwhile, so that a caller who
    is slow loses nothing until the high-water mark. ``positions`` names the batch behind which each
    (pod, DP rank) goes on. Raises `StreamError` for an endpoint that
    cannot be used.
    """

    def __init__(
        self,
        sources: Iterable[StreamSource],
        *,
        use_replay: bool = True,
        since_seq: int = 0,
        max_queued: int = MAX_QUEUED,
        positions: Mapping[tuple[str, int], Position] | None = None,
    ) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.setsockopt(zmq.MAX_SOCKETS, 65535)
        self._records: queue.SimpleQueue[list[Record]] = queue.SimpleQueue()
        self._queued = 0
        self._max_queued = max_queued
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._use_replay = use_replay
        self._since = since_seq
        self._positions = dict(positions or {})
        self._endpoints: list[Endpoint] = []
        self._fault: BaseException | None = None
        try:
            for source in sources:
                self._endpoints.append(self._open(source))
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
        """Stop receiving, and close every socket."""
        self._stopping.set()
        self._thread.join()

    def settled(self) -> bool:
        """Whether all is connected and read, and no replay or hole is awaited."""
        with self._lock:
            return self._queued == 0 and all(
                each.connected and each.settled for each in self._endpoints
            )

    def statuses(self) -> list[StreamStatus]:
        """The status of every stream, by pod and rank."""
        with self._lock:
            found = [status for each in self._endpoints for status in each.statuses()]
        return sorted(found, key=lambda status: (status.pod, status.rank))

    def unconnected(self) -> list[tuple[str, str]]:
        """Endpoints without a connection now, each with what is the matter."""
        with self._lock:
            return [
                (each.source.events, "does not speak ZMQ" if each.accepted else "is not served")
                for each in self._endpoints
                if not each.connected
            ]

    @property
    def endpoint_count(self) -> int:
        """How many endpoints are read."""
        return len(self._endpoints)

    def _open(self, source: StreamSource) -> Endpoint:
        return Endpoint(
            self._context,
            source,
            use_replay=self._use_replay,
            since_seq=self._since,
            now=time.monotonic(),
            positions=self._positions,
        )

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._wait()
                self._step()
            with self._lock:
                for endpoint in self._endpoints:
                    self._hand_over(endpoint.finish())
        except BaseException as error:  # whatever it is, the reader must hear of it
            self._fault = error
        finally:
            self._close()

    def _wait(self) -> None:
        poller = zmq.Poller()
        read = self._queued < self._max_queued
        for endpoint in self._endpoints:
            if read:
                poller.register(endpoint.socket, zmq.POLLIN)
            if endpoint.request is not None:
                poller.register(endpoint.request.socket, zmq.POLLIN)
        poller.poll(_POLL_MS)

    def _step(self) -> None:
        now = time.monotonic()
        read = self._queued < self._max_queued
        with self._lock:
            for endpoint in self._endpoints:
                self._hand_over(endpoint.step(now, read=read))

    def _hand_over(self, records: list[Record]) -> None:
        if records:
            self._queued += _weight(records)
            self._records.put(records)

    def _close(self) -> None:
        for endpoint in self._endpoints:
            endpoint.close()
        self._context.destroy(linger=0)


def _weight(records: list[Record]) -> int:
    return sum(
        1 + (len(record.wire.payload) >> 12 if isinstance(record, (Batch, Undecodable)) else 0)
        for record in records
    )
