"""Engines to talk to: real HTTP servers, well-behaved and not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest
from engine_server import EngineServer

from kvctl.engine import EngineClient

Script = Callable[[socket.socket], None]


@pytest.fixture
def engine() -> Iterator[EngineServer]:
    """vLLM 0.32."""
    server = EngineServer(32)
    yield server
    server.stop()


@pytest.fixture
def engine_of() -> Iterator[Callable[[int | None], EngineServer]]:
    """An engine of any version: a minor number of vLLM 0.x, None for SGLang."""
    with ExitStack() as stack:

        def start(version: int | None) -> EngineServer:
            server = EngineServer(version)
            stack.callback(server.stop)
            return server

        yield start


@pytest.fixture
def client(engine: EngineServer) -> EngineClient:
    return EngineClient("pod-a", engine.url)


@pytest.fixture
def scripted() -> Iterator[Callable[[Script], str]]:
    """A server that does with each connection what a script says; returns its URL.

    The script gets the connection after the request's head was read, unless it is marked
    `script.at_once = True`.
    """
    with ExitStack() as stack:

        def start(script: Script) -> str:
            listener = socket.create_server(("127.0.0.1", 0))
            thread = threading.Thread(target=_serve, args=(listener, script), daemon=True)
            thread.start()
            stack.callback(thread.join, 10)
            stack.callback(listener.close)
            # Closing a socket does not wake an accept that waits on it; shutting it down does.
            stack.callback(listener.shutdown, socket.SHUT_RDWR)
            return f"http://127.0.0.1:{listener.getsockname()[1]}"

        yield start


def _serve(listener: socket.socket, script: Script) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection, suppress(OSError):
            connection.settimeout(10)
            request = b""
            while b"\r\n\r\n" not in request and not getattr(script, "at_once", False):
                received = connection.recv(65536)
                if not received:
                    break
                request += received
            script(connection)
