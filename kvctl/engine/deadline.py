"""A deadline for a whole HTTP exchange: when it is over, the socket is shut.

requests' own timeout is per read: an engine that sends one byte now and then is never too late.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Self

from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection


class Deadline:
    """``seconds`` for everything done inside the ``with`` block over a `WatchedAdapter`.

    ``connected`` tells whether a connection came about, so that a request may have been sent;
    ``expired`` whether the time is up. Looking up a host's name is the system's and is not cut.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.connected = False
        self.expired = False
        self._ends = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True
        self._token: Token[Deadline | None] | None = None

    @property
    def remaining(self) -> float:
        """Seconds left, never less than a millisecond: sockets take 0 for something else."""
        return max(self._ends - time.monotonic(), 0.001)

    def watch(self, sock: socket.socket) -> None:
        """Shut ``sock`` when the time is up."""
        with self._lock:
            self.connected = True
            self._socket = sock
            if self.expired:
                _shut(sock)

    def _expire(self) -> None:
        with self._lock:
            self.expired = True
            if self._socket is not None:
                _shut(self._socket)

    def __enter__(self) -> Self:
        self._token = _current.set(self)
        self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        if self._token is not None:
            _current.reset(self._token)
        with self._lock:
            self._socket = None


_current: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


def _shut(sock: socket.socket) -> None:
    with suppress(OSError):  # the other side was quicker
        sock.shutdown(socket.SHUT_RDWR)


def _tell(sock: Any) -> None:
    deadline = _current.get()
    if deadline is not None and sock is not None:
        deadline.watch(sock)


class _Connection(HTTPConnection):
    def connect(self) -> None:
        super().connect()
        _tell(self.sock)


class _SecureConnection(HTTPSConnection):
    def connect(self) -> None:
        super().connect()
        _tell(self.sock)


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


class WatchedAdapter(HTTPAdapter):
    """requests' adapter, whose connections stand under the `Deadline` in force."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make the manager of direct connections."""
        super().init_poolmanager(*args, **kwargs)
        _put_pools(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        """Make the manager of connections through ``proxy``."""
        manager = super().proxy_manager_for(proxy, **kwargs)
        if not proxy.lower().startswith("socks"):  # SOCKS needs the pools of its own
            _put_pools(manager)
        elif (deadline := _current.get()) is not None:
            deadline.connected = True  # nobody will tell: take the careful answer
        return manager


def _put_pools(manager: PoolManager) -> None:
    manager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}
