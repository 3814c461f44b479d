"""One SUB socket: its frames to ordered records, its connection watched, its replay asked."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass

import zmq
from zmq.utils.monitor import recv_monitor_message

from kvctl.events import (
    Batch,
    DecodeError,
    Gap,
    Note,
    Position,
    Record,
    Restart,
    Undecodable,
    WireBatch,
    decode_record,
    parse_message,
)
from kvctl.stream.errors import StreamError
from kvctl.stream.order import Sequencer
from kvctl.stream.replay import MAX_MESSAGE, TRIES, ReplayRequest
from kvctl.stream.source import ReplayState, StreamSource, StreamStatus, speaks_ipv6

RECEIVE_HWM = 100_000
MAX_STREAMS = 1024
"""Streams on one endpoint; a hostile publisher could name a new pod with every message."""

MESSAGES_PER_TURN = 512
"""Messages taken from one socket before the others have their turn."""

HANDSHAKE_MS = 5000
"""How long a peer may take to show that it speaks ZMQ."""

RECONNECT_GRACE_S = 1.0
"""How long after a lost connection libzmq must have begun to make it anew."""

CONNECT_WAIT_S = 2.0
"""How long the replay waits for the SUB connection: what is published between is lost else."""


@dataclass
class _Counts:
    batches: int = 0
    gaps: int = 0
    missing: int = 0
    restarts: int = 0
    undecodable: int = 0
    last_batch_ns: int | None = None


class Endpoint:
    """The streams that come over one source. Used by one thread; ``now`` is monotonic seconds."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        source: StreamSource,
        *,
        use_replay: bool,
        since_seq: int,
        now: float,
        positions: Mapping[tuple[str, int], Position],
    ) -> None:
        self.source = source
        self.connected = False
        self.accepted = False  # somebody took the TCP connection, whatever they speak
        self.request: ReplayRequest | None = None
        self._context = context
        self._replay = source.replay if use_replay else None
        self._since = since_seq
        self._positions = positions
        self._replay_state: ReplayState = "none" if self._replay is None else "asking"
        self._ask_from = now + CONNECT_WAIT_S
        self._streams: dict[tuple[str, int], Sequencer] = {}
        self._counts: dict[tuple[str, int], _Counts] = {}
        self._fault_counts: dict[str, int] = {}
        self._was_connected = False
        self._given_up_at: float | None = None
        self.socket = context.socket(zmq.SUB)
        self._monitor: zmq.Socket[bytes] | None = None
        try:
            self._open()
        except BaseException:
            self.close()
            raise
        self._stream(source.pod, source.rank)

    def _open(self) -> None:
        socket = self.socket
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, RECEIVE_HWM)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE)
        socket.setsockopt(zmq.IPV6, speaks_ipv6(self.source.events))
        socket.setsockopt(zmq.RECONNECT_IVL, 100)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        socket.setsockopt_string(zmq.SUBSCRIBE, self.source.topic)
        self._monitor = socket.get_monitor_socket()
        try:
            if self.source.bind:
                socket.bind(self.source.events)
            else:
                socket.connect(self.source.events)
        except zmq.ZMQError as error:
            verb = "bind" if self.source.bind else "connect to"
            raise StreamError(
                f"pod {self.source.pod}: cannot {verb} {self.source.events}: {error.strerror}",
                remedy="expected an endpoint like tcp://10.0.0.7:5557"
                + (", free on this machine" if self.source.bind else ""),
            ) from None

    def close(self) -> None:
        """Close every socket."""
        if self.request is not None:
            self.request.close()
        if self._monitor is not None:
            self.socket.disable_monitor()
        self.socket.close()

    @property
    def settled(self) -> bool:
        """Whether no answer of the replay is awaited and no hole waits to be filled."""
        return self.request is None and not any(
            stream.catching_up or stream.held for stream in self._streams.values()
        )

    def step(self, now: float, *, read: bool) -> list[Record]:
        """Take what came; ``read`` False leaves the live batches with ZMQ for now."""
        out: list[Record] = []
        self._watch_connection(now, out)
        if self.request is not None:
            self._drain_replay(now, out)
        if read:
            self._receive(now, out)
        for stream in list(self._streams.values()):
            out += stream.tick(now)
        self._ask_replay(now)
        self._count(out)
        return out

    def finish(self) -> list[Record]:
        """The end: what is held, with what is missing declared."""
        out: list[Record] = []
        if self.request is not None:
            self.request.close()
            self.request = None
        for stream in self._streams.values():
            out += stream.flush()
        self._count(out)
        return out

    def statuses(self) -> list[StreamStatus]:
        """The status of every stream of this endpoint."""
        found = []
        for (pod, rank), stream in self._streams.items():
            counts = self._counts[pod, rank]
            found.append(
                StreamStatus(
                    pod,
                    rank,
                    self.source.events,
                    self.connected,
                    self._replay_state,
                    stream.last_seq,
                    counts.batches,
                    counts.gaps,
                    counts.missing,
                    counts.restarts,
                    counts.undecodable,
                    stream.duplicates,
                    counts.last_batch_ns,
                )
            )
        return found

    # -- live -----------------------------------------------------------------------------------

    def _receive(self, now: float, out: list[Record]) -> None:
        for _ in range(MESSAGES_PER_TURN):
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            received = time.time_ns()
            try:
                topic, seq, payload = parse_message(frames)
            except DecodeError as error:
                self._fault(error.detail, out)
                continue
            message = self._message(received, topic, seq, payload)
            stream = self._stream(message.wire.pod, message.wire.rank)
            if stream is None:
                self._fault(f"more than {MAX_STREAMS} streams; this one's are dropped", out)
                continue
            self._counts[message.wire.pod, message.wire.rank].last_batch_ns = received
            out += stream.feed(message, now)

    def _message(
        self, received: int, topic: bytes, seq: int, payload: bytes
    ) -> Batch | Undecodable:
        pod = self.source.pod
        if self.source.bind:
            pod = _pod_of(topic) or pod
        wire = WireBatch(received, pod, self.source.rank, topic, seq, payload)
        return decode_record(wire, rank_from_payload=True)

    def _stream(self, pod: str, rank: int) -> Sequencer | None:
        stream = self._streams.get((pod, rank))
        if stream is None and len(self._streams) < MAX_STREAMS:
            stream = Sequencer(
                pod,
                rank,
                replay=self._replay is not None,
                since_seq=self._since,
                resume=self._positions.get((pod, rank)),
            )
            self._streams[pod, rank] = stream
            self._counts[pod, rank] = _Counts()
        return stream

    def _fault(self, text: str, out: list[Record]) -> None:
        """A malformed message: told when it is the first of its kind, then at 10, 100, …"""
        count = self._fault_counts[text] = self._fault_counts.get(text, 0) + 1
        if count == 1 or (count >= 10 and set(str(count)[1:]) == {"0"} and str(count)[0] == "1"):
            again = "" if count == 1 else f" ({count} times by now)"
            out.append(
                Note(time.time_ns(), self.source.pod, None, f"{self.source.events}: {text}{again}")
            )

    # -- connection -----------------------------------------------------------------------------

    def _watch_connection(self, now: float, out: list[Record]) -> None:
        assert self._monitor is not None
        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)["event"]
            if event in (zmq.EVENT_CONNECT_DELAYED, zmq.EVENT_CONNECT_RETRIED):
                self._given_up_at = None
            elif event == zmq.EVENT_CONNECTED:
                self.accepted = True
                self._given_up_at = None
            elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self.connected = True
                if self._was_connected and not self.source.bind:
                    self._note("connected again", out)
                    for stream in self._streams.values():
                        stream.reconnected()
                self._was_connected = True
            elif event == zmq.EVENT_DISCONNECTED and self.connected:
                self.connected = False
                self._given_up_at = now + RECONNECT_GRACE_S
                self._note("connection lost", out)
            elif event in (
                zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
                zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
                zmq.EVENT_HANDSHAKE_FAILED_AUTH,
            ):
                self._fault("does not speak ZMQ", out)
        if self._given_up_at is not None and now >= self._given_up_at:
            self._connect_anew()

    def _connect_anew(self) -> None:
        """libzmq itself does not after a message over the limit: it takes the peer for broken."""
        self._given_up_at = None
        if not self.source.bind:
            with contextlib.suppress(zmq.ZMQError):
                self.socket.disconnect(self.source.events)
            self.socket.connect(self.source.events)

    def _note(self, text: str, out: list[Record]) -> None:
        out.append(Note(time.time_ns(), self.source.pod, None, f"{self.source.events}: {text}"))

    # -- replay ---------------------------------------------------------------------------------

    def _ask_replay(self, now: float) -> None:
        if self.request is not None or self._replay is None:
            return
        if not self.connected and now < self._ask_from:
            return
        wanted = [stream.want for stream in self._streams.values() if stream.want is not None]
        if wanted:
            # One that never answered is asked again, but not waited for long.
            tries = 1 if self._replay_state == "silent" else TRIES
            self.request = ReplayRequest(self._context, self._replay, min(wanted), now, tries)

    def _drain_replay(self, now: float, out: list[Record]) -> None:
        request = self.request
        assert request is not None
        request.drain(now)
        if not request.done:
            return
        self.request = None
        self._replay_state = "ok" if request.whole else "silent" if request.silent else "incomplete"
        if self._replay_state == "silent":
            self._fault(f"no answer from the replay at {request.endpoint}", out)
        for fault in request.faults:
            self._fault(f"replay: {fault}", out)
        received = time.time_ns()
        by_stream: dict[tuple[str, int], list[Batch | Undecodable]] = {}
        for seq, (topic, payload) in request.answers.items():
            message = self._message(received, topic, seq, payload)
            if self._stream(message.wire.pod, message.wire.rank) is not None:
                by_stream.setdefault((message.wire.pod, message.wire.rank), []).append(message)
        for key, stream in self._streams.items():
            if stream.want is not None:
                out += stream.replayed(by_stream.get(key, ()), request.whole, now)
        request.answers = {}

    def _count(self, records: list[Record]) -> None:
        for record in records:
            if isinstance(record, (Batch, Undecodable)):
                counts = self._counts[record.wire.pod, record.wire.rank]
                counts.batches += 1
                counts.undecodable += isinstance(record, Undecodable)
            elif isinstance(record, Gap):
                counts = self._counts[record.pod, record.rank]
                counts.gaps += not record.recovered
                counts.missing += 0 if record.recovered else record.missing
            elif isinstance(record, Restart):
                self._counts[record.pod, record.rank].restarts += 1


def _pod_of(topic: bytes) -> str | None:
    parts = topic.decode(errors="replace").split("@")
    return parts[1] if len(parts) == 3 and parts[0] == "kv" and parts[1] else None
