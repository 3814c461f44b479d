"""The connection of one SUB socket, as its monitor tells it."""

from __future__ import annotations

import contextlib
import logging

import zmq
from zmq.utils.monitor import recv_monitor_message

from kvctl.stream.sockets import close_sub, handshake_s, open_sub
from kvctl.stream.source import StreamSource

_log = logging.getLogger(__name__)

# After a connection libzmq gave up for good, and between two of our own attempts at it.
_CONNECT_ANEW_S = 1.0

# A peer behind a proxy or on its way up may close a few connections before it speaks.
_CLOSED_AT_ONCE = 3

_FAILED = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH,
)


class Connection:
    """A source's SUB socket. Times are monotonic seconds.

    ``made`` and ``remade`` are for the caller to reset: a peer has come since; not the first, so
    that what it publishes may be of another life.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], source: StreamSource) -> None:
        self.made = self.remade = False
        self._source = source
        self._peers = 0  # several where we bind
        self._accepted = False  # somebody took the TCP connection, whatever they speak
        self._spoke = False  # a ZMQ peer was there
        self._lost = False
        self._failures = 0  # connections in a row without a handshake
        self._handshake_failed = False
        self._told_mute = False
        self._anew_at: float | None = None
        self._broke_off = False
        self.socket, self.monitor = open_sub(context, source)

    @property
    def connected(self) -> bool:
        """Whether a ZMQ peer is there."""
        return self._peers > 0

    @property
    def fault(self) -> str:
        """What is wrong with the endpoint, to stand behind its name; empty if connected."""
        if self.connected:
            return ""
        if self._spoke:
            return "has lost its connection"
        if self._source.events_via is not None:
            return "is not reached"  # who takes the connection here is not the peer
        if self._accepted:
            return "does not speak ZMQ"
        return "has no engine connected" if self._source.bind else "is not served"

    def watch(self, now: float) -> list[str]:
        """Take in what the monitor tells; returns what is worth a note."""
        notes: list[str] = []
        while self.monitor.poll(0):
            message = recv_monitor_message(self.monitor)
            self._happened(message["event"], message["value"], now, notes)
        if self._anew_at is not None and now >= self._anew_at:
            self._connect_anew(notes)
        # libzmq subscribes anew over a new connection only when the socket is asked for something,
        # and nobody reads it while the caller is slow.
        self.socket.getsockopt(zmq.EVENTS)
        return notes

    def close(self) -> None:
        """Close both sockets; again does nothing."""
        close_sub(self.socket, self.monitor)

    def _happened(self, event: int, value: int, now: float, notes: list[str]) -> None:
        if event in (zmq.EVENT_CONNECT_DELAYED, zmq.EVENT_CONNECT_RETRIED):
            self._anew_at = None  # libzmq is at it
        elif event in (zmq.EVENT_CONNECTED, zmq.EVENT_ACCEPTED):
            self._anew_at = None
            self._accepted = True
        elif event == zmq.EVENT_CLOSED:
            self._accepted = False  # an attempt that nobody took
        elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._peer_came(notes)
        elif event in _FAILED:
            self._handshake_failed = True
            # An errno; EAGAIN is our own time-out.
            certain = event != zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL or value == zmq.EAGAIN
            self._no_handshake(certain, notes)
        elif event == zmq.EVENT_DISCONNECTED:
            self._peer_left(now, notes)

    def _peer_came(self, notes: list[str]) -> None:
        _log.debug("ZMQ connected %s", self._source.events)
        self._peers += 1
        self.made = True
        self.remade = self.remade or self._spoke
        self._spoke = True
        self._failures = 0
        self._told_mute = self._broke_off = False
        if self._lost:
            self._lost = False
            notes.append("connected again")

    def _peer_left(self, now: float, notes: list[str]) -> None:
        if not self._source.bind:
            self._anew_at = now + _CONNECT_ANEW_S
        if self._handshake_failed:
            self._handshake_failed = False
        elif self._peers == 0:  # cut off in the handshake, without an event for it
            self._no_handshake(False, notes)
        else:
            self._peers -= 1
            self._lost = self._broke_off = True
            _log.debug("ZMQ disconnected %s", self._source.events)
            notes.append("connection lost")

    def _no_handshake(self, certain: bool, notes: list[str]) -> None:
        self._failures += 1
        closed_at_once = self._failures >= _CLOSED_AT_ONCE and self._source.events_via is None
        if self._told_mute or not (certain or closed_at_once):
            return
        self._told_mute = True
        if self._source.bind:
            notes.append("a peer that does not speak ZMQ tried to connect")
        else:
            notes.append(
                "does not speak ZMQ as an event publisher does: it takes connections, but no "
                f"handshake follows within {handshake_s(self._source):g} s; still trying"
            )

    def _connect_anew(self, notes: list[str]) -> None:
        """libzmq itself does not, where it took what came for broken."""
        self._anew_at = None
        if self._broke_off:
            self._broke_off = False
            notes.append(
                "ZMQ broke the connection off: a message over 64 MiB, or none of ZMQ's; "
                "connecting anew"
            )
        with contextlib.suppress(zmq.ZMQError):
            self.socket.disconnect(self._source.address)
        self.socket.connect(self._source.address)
