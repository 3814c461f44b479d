"""The ZMQ sockets of a stream, with the settings they need."""

from __future__ import annotations

import errno
import logging

import zmq

from kvctl.events import MAX_PAYLOAD
from kvctl.stream.errors import StreamError
from kvctl.stream.source import StreamSource, speaks_ipv6

_log = logging.getLogger(__name__)

RECEIVE_HWM = 100_000

# libzmq drops the connection over a larger message.
MAX_MESSAGE = MAX_PAYLOAD + 1024 * 1024

HANDSHAKE_S = 3.0
"""How long a peer may take to show that it speaks ZMQ."""

FORWARDED_HANDSHAKE_S = 15.0
"""The same behind a local port, which takes a connection before it has one to the peer."""


def handshake_s(source: StreamSource) -> float:
    """How long the peer of this source may take."""
    return HANDSHAKE_S if source.events_via is None else FORWARDED_HANDSHAKE_S


def open_sub(
    context: zmq.Context[zmq.Socket[bytes]], source: StreamSource
) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
    """The SUB socket of a source, subscribed and connected or bound, with its monitor.

    Raises `StreamError` that names the endpoint.
    """
    monitor = None
    socket = _open(context, zmq.SUB, source.address)
    try:
        socket.setsockopt(zmq.RCVHWM, RECEIVE_HWM)
        socket.setsockopt(zmq.RECONNECT_IVL, 100)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 30)
        socket.setsockopt(zmq.HANDSHAKE_IVL, int(handshake_s(source) * 1000))
        socket.setsockopt_string(zmq.SUBSCRIBE, source.topic)
        monitor = socket.get_monitor_socket()
        if source.bind:
            socket.bind(source.address)
        else:
            socket.connect(source.address)
    except zmq.ZMQError as error:
        if monitor is not None:
            close_sub(socket, monitor)
        else:
            socket.close()
        verb = "bind" if source.bind else "connect to"
        free = ", free on this machine" if source.bind else ""
        raise _refused(f"pod {source.pod}: cannot {verb} {source.events}", error, free) from None
    verb = "bind" if source.bind else "connect"
    _log.debug("ZMQ %s %s (pod %s), subscribe %r", verb, source.events, source.pod, source.topic)
    return socket, monitor


def close_sub(socket: zmq.Socket[bytes], monitor: zmq.Socket[bytes]) -> None:
    """Close what `open_sub` opened; again does nothing."""
    if not socket.closed:
        socket.disable_monitor()  # which leaves its own socket open
        monitor.close()
        socket.close()


def open_dealer(context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> zmq.Socket[bytes]:
    """A DEALER socket connected to a replay endpoint; raises `StreamError` that names it."""
    socket = _open(context, zmq.DEALER, endpoint)
    try:
        socket.setsockopt(zmq.RCVHWM, 0)
        socket.connect(endpoint)
    except zmq.ZMQError as error:
        socket.close()
        raise _refused(f"cannot connect to the replay at {endpoint}", error) from None
    return socket


def _open(context: zmq.Context[zmq.Socket[bytes]], kind: int, endpoint: str) -> zmq.Socket[bytes]:
    try:
        socket = context.socket(kind)
    except zmq.ZMQError as error:
        raise _refused(f"no socket for {endpoint}", error) from None
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE)
    socket.setsockopt(zmq.IPV6, speaks_ipv6(endpoint))
    return socket


def _refused(what: str, error: zmq.ZMQError, condition: str = "") -> StreamError:
    if error.errno == errno.EMFILE:
        remedy = "read fewer pods at once, or raise the limit of open files: ulimit -n"
    else:
        remedy = f"expected an endpoint like tcp://10.0.0.7:5557{condition}"
    # pyzmq's own text names the endpoint once more.
    return StreamError(f"{what}: {zmq.strerror(error.errno or 0)}", remedy=remedy)
