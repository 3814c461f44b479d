"""One local port that leads to one port of a pod."""

from __future__ import annotations

import asyncio
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from contextlib import suppress

from kvctl.fleet.forwardfaults import ForwardError
from kvctl.fleet.forwardlink import Link
from kvctl.fleet.pod import Role
from kvctl.fleet.portchannel import PortOpener

FIRST_WAIT_S = 0.25
LONGEST_WAIT_S = 4.0
"""Seconds between tries at a port that fails, doubling from the first to the longest; who connects
meanwhile waits. ZMQ by itself would try ten times a second, and the API server has the work."""


_TURNS = 8


async def some_turns() -> None:
    """Let the event loop get done with what it has begun: a connection takes a few turns."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


class ForwardedPort:
    """A listening socket, each of whose connections gets a channel of its own to the pod.

    It outlives every fault, which ``failed`` is told of: who connects next finds the pod if it is
    back. For one event loop, but for the making.
    """

    def __init__(
        self,
        pod: str,
        port: int,
        role: Role,
        listening: socket.socket,
        opener: PortOpener,
        failed: Callable[[ForwardError], None],
    ) -> None:
        self._pod = pod
        self._port = port
        self._role: Role = role
        self._listening = listening
        self._opener = opener
        self._failed = failed
        self._wait = 0.0
        self._try_at = 0.0
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._closed = False

    async def serve(self) -> None:
        """Begin to take connections."""
        self._server = await asyncio.start_server(self._take, sock=self._listening)
        if self._closed:
            self._server.close()

    async def close(self) -> None:
        """Take no more connections, and close those that are there."""
        self._closed = True
        if self._server is not None:
            # A server that is closed loses what it has accepted and not made a transport of yet
            # (Python 3.11): it accepts no more first, and has the turns that takes.
            asyncio.get_running_loop().remove_reader(self._listening)
            await some_turns()
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self._listening.close()

    def _take(self, reader: StreamReader, writer: StreamWriter) -> None:
        if self._closed:
            writer.transport.abort()
            return
        # Not left to asyncio: before Python 3.12 it complains of a task that was cancelled.
        task = asyncio.create_task(self._serve_one(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        # Here and not in the task: one that is cancelled before its first turn does nothing at all.
        task.add_done_callback(lambda _task: writer.transport.abort())

    async def _serve_one(self, reader: StreamReader, writer: StreamWriter) -> None:
        await self._join(reader, writer)
        writer.close()  # once what it still holds has been taken
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def _join(self, reader: StreamReader, writer: StreamWriter) -> None:
        clock = asyncio.get_running_loop().time
        while (left := self._try_at - clock()) > 0:
            await asyncio.sleep(left)
        reached = False
        try:
            channel = await self._opener.open(self._pod, self._port, self._role)
            link = Link(reader, writer, channel)
            try:
                await link.run()
            finally:
                reached = link.reached
                await channel.close()
        except ForwardError as error:
            # What breaks off later is for those to tell who were reading it.
            if not reached:
                self._wait = min(max(self._wait * 2, FIRST_WAIT_S), LONGEST_WAIT_S)
                self._try_at = clock() + self._wait
                self._failed(error)
        if reached:
            self._wait = self._try_at = 0.0
