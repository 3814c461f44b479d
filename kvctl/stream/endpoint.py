"""The streams that come over one source: frames in, ordered records out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import zmq

from kvctl.events import (
    DecodeError,
    Note,
    Position,
    Record,
    Undecodable,
    WireBatch,
    decode_record,
    parse_message,
)
from kvctl.stream.connection import Connection
from kvctl.stream.life import Message
from kvctl.stream.order import Sequencer
from kvctl.stream.repeats import Repeats
from kvctl.stream.replay import TIMEOUT_S, TRIES, ReplayRequest, StreamKey
from kvctl.stream.sockets import open_dealer
from kvctl.stream.source import StreamSource
from kvctl.stream.status import ReplayState, StreamStatus

MAX_STREAMS = 1024
"""Streams on one endpoint; a hostile publisher could name a new pod with every message."""

MESSAGES_PER_TURN = 512
"""Messages taken from one socket before the others have their turn."""

CONNECT_WAIT_S = 2.0
"""How long the replay waits for the SUB connection: what is published between is lost else."""

SUBSCRIBE_S = 0.1
"""How long after the connection is made the subscription has surely been taken."""


@dataclass(frozen=True)
class ReplayOptions:
    """How the replay is used. ``timeout`` in seconds, to the first message of an answer."""

    use: bool = True
    since_seq: int = 0
    timeout: float = TIMEOUT_S
    tries: int = TRIES


@dataclass
class _Asked:
    """A request under way, and the streams it is for with the seq each of them wants."""

    request: ReplayRequest
    wants: dict[StreamKey, int] = field(default_factory=dict)


class Endpoint:
    """The streams of one source. Used by one thread; times are monotonic seconds."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        source: StreamSource,
        options: ReplayOptions,
        now: float,
        positions: Mapping[StreamKey, Position],
        *,
        tokens: bool = True,
    ) -> None:
        self.source = source
        self._tokens = tokens
        self._context = context
        self._options = options
        self._positions = positions
        self._replay = source.replay if options.use else None
        self._replay_state: ReplayState = "none" if self._replay is None else "asking"
        self._ask_from = now + CONNECT_WAIT_S
        self._drained = True
        self._asked: _Asked | None = None
        self._streams: dict[StreamKey, Sequencer] = {}
        self._replayed_streams: set[StreamKey] = set()
        self._repeats = Repeats()
        if self._replay is not None:
            # Refuses what is no endpoint.
            open_dealer(context, source.replay_address or self._replay).close()
        self.connection = Connection(context, source)
        self._stream((source.pod, source.rank))

    def close(self) -> None:
        """Close every socket."""
        self._drop_request()
        self.connection.close()

    def sockets(self, *, read: bool) -> list[zmq.Socket[bytes]]:
        """What to poll; ``read`` False leaves out the live batches."""
        found = [self.connection.monitor]
        if read:
            found.append(self.connection.socket)
        if self._asked is not None:
            found.append(self._asked.request.socket)
        return found

    @property
    def settled(self) -> bool:
        """Whether all is connected, no answer awaited, and no hole waits to be filled."""
        return (
            self.connection.connected
            and self._asked is None
            and all(stream.settled for stream in self._streams.values())
        )

    def step(self, now: float, *, read: bool) -> list[Record]:
        """Take what came; ``read`` False leaves the live batches with ZMQ for now."""
        out: list[Record] = []
        # The connection first: what it brings may be of another life than what came before.
        for text in self.connection.watch(now):
            self._note(text, out)
        if self.connection.made:
            self._connected(now, again=self.connection.remade)
        if read:
            self._receive(now, out)
        if self._asked is not None:
            self._drain_replay(self._asked, now, out)
        for stream in list(self._streams.values()):
            out += stream.tick(now)
        self._ask_replay(now)
        return out

    def finish(self) -> list[Record]:
        """The end: what is held, with what is missing declared."""
        self._drop_request()
        return [record for stream in self._streams.values() for record in stream.flush()]

    def statuses(self) -> list[StreamStatus]:
        """The status of every stream; of the source's own only if it or none has had a batch."""
        found = []
        for key, stream in self._streams.items():
            if not stream.received and not stream.counts.batches and len(self._streams) > 1:
                continue
            counts = stream.counts
            found.append(
                StreamStatus(
                    *key,
                    endpoint=self.source.events,
                    connected=self.connection.connected,
                    replay=self._replay_state,
                    last_seq=stream.last_seq,
                    batches=counts.batches,
                    gaps=counts.gaps,
                    missing=counts.missing,
                    restarts=counts.restarts,
                    undecodable=counts.undecodable,
                    duplicates=counts.duplicates,
                    last_batch_ns=stream.last_batch_ns or None,
                    recovered=counts.recovered,
                    late=counts.late,
                    held=stream.held,
                )
            )
        return found

    # -- live -----------------------------------------------------------------------------------

    def _receive(self, now: float, out: list[Record]) -> None:
        socket = self.connection.socket
        for _ in range(MESSAGES_PER_TURN):
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                self._drained = True
                return
            try:
                topic, seq, payload = parse_message(frames)
            except DecodeError as error:
                self._fault(error.detail, out)
                continue
            message = self._message(time.time_ns(), topic, seq, payload)
            stream = self._stream((message.wire.pod, message.wire.rank))
            if stream is None:
                self._fault(f"more than {MAX_STREAMS} streams; the others are dropped", out)
            else:
                out += stream.feed(message, now)

    def _message(self, received: int, topic: bytes, seq: int, payload: bytes) -> Message:
        pod = self.source.pod
        if self.source.bind:
            pod = _pod_of(topic) or pod
        wire = WireBatch(received, pod, self.source.rank, topic, seq, payload)
        message = decode_record(wire, rank_from_payload=True, tokens=self._tokens)
        if isinstance(message, Undecodable) and len(self._streams) > 1:
            rank = self._likely_rank(pod, seq)
            wire = WireBatch(received, pod, rank, topic, seq, payload)
            message = Undecodable(wire, message.error)
        return message

    def _likely_rank(self, pod: str, seq: int) -> int:
        """The rank of a batch that does not tell it: where ranks share a port, whose turn it is."""
        for (of_pod, rank), stream in self._streams.items():
            if of_pod == pod and stream.next_seq == seq:
                return rank
        return self.source.rank

    def _stream(self, key: StreamKey) -> Sequencer | None:
        stream = self._streams.get(key)
        if stream is None and len(self._streams) < MAX_STREAMS:
            stream = Sequencer(
                *key,
                replay=self._replay is not None,
                since_seq=self._options.since_seq,
                resume=self._positions.get(key),
            )
            self._streams[key] = stream
        return stream

    def _connected(self, now: float, *, again: bool) -> None:
        self.connection.made = self.connection.remade = False
        self._ask_from = now + SUBSCRIBE_S
        if again:
            self._drained = False
            self._drop_request()  # its answer may be of the life before
        if self._replay_state == "silent":
            self._replay_state = "asking"
        for stream in self._streams.values():
            stream.connected(again=again)

    def _fault(self, text: str, out: list[Record]) -> None:
        told = self._repeats.tell(text)
        if told is not None:
            self._note(told, out)

    def _note(self, text: str, out: list[Record]) -> None:
        out.append(Note(time.time_ns(), self.source.pod, None, f"{self.source.events}: {text}"))

    # -- replay ---------------------------------------------------------------------------------

    def _ask_replay(self, now: float) -> None:
        if self._asked is not None or self._replay is None:
            return
        if now < self._ask_from:
            return
        if not self._drained:
            return  # what the old connection left must not be taken for newer than the answer
        wants = {
            key: stream.want for key, stream in self._streams.items() if stream.want is not None
        }
        if wants:
            silent = self._replay_state == "silent"
            request = ReplayRequest(
                self._context,
                self._replay,
                min(wants.values()),
                now,
                address=self.source.replay_address,
                decode=lambda *answer: self._message(time.time_ns(), *answer),
                timeout=self._options.timeout,
                tries=1 if silent else self._options.tries,
            )
            self._asked = _Asked(request, wants)
            for key in wants:
                self._streams[key].asked()

    def _drain_replay(self, asked: _Asked, now: float, out: list[Record]) -> None:
        request = asked.request
        request.drain(now)
        if not request.done and any(self._still_wants(key, asked) for key in asked.wants):
            return
        self._drop_request()
        if not request.done:  # everybody has stopped waiting
            return
        self._replay_state = "ok" if request.whole else "silent" if request.silent else "incomplete"
        if self._replay_state == "silent":
            self._fault(f"no answer from the replay at {request.endpoint}", out)
        for fault in request.faults:
            self._fault(f"replay: {fault}", out)
        self._replayed_streams.update(request.batches)
        for key in request.batches.keys() - self._streams.keys():
            stream = self._stream(key)
            if stream is not None and stream.want is not None and stream.want >= request.start:
                asked.wants[key] = stream.want
        for key in asked.wants:
            if self._still_wants(key, asked):
                batches = request.batches.get(key, {})
                whole = request.whole and self._speaks_for(key)
                out += self._streams[key].replayed(
                    batches.values(), whole, now, recv_ns=time.time_ns()
                )

    def _speaks_for(self, key: StreamKey) -> bool:
        """Whether the replay can be silent about a stream only because it holds nothing of it.

        Several engines may publish to one endpoint, while its replay is that of one of them.
        """
        if key in self._replayed_streams:
            return True
        others = self._replayed_streams or any(
            each.received or each.counts.batches
            for other, each in self._streams.items()
            if other != key
        )
        return not others

    def _still_wants(self, key: StreamKey, asked: _Asked) -> bool:
        return self._streams[key].want == asked.wants[key]

    def _drop_request(self) -> None:
        if self._asked is not None:
            self._asked.request.close()
            self._asked = None


def _pod_of(topic: bytes) -> str | None:
    """The pod of a topic of llm-d's form, `kv@<pod>@<model>`."""
    parts = topic.decode(errors="replace").split("@")
    return parts[1] if len(parts) == 3 and parts[0] == "kv" and parts[1] else None
