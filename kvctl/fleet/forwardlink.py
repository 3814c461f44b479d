"""One local connection joined to a port of a pod: bytes in both directions, until an end."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from contextlib import suppress

from kvctl.fleet.portchannel import PortChannel

CHUNK = 64 * 1024
"""Most bytes that are read from the local side at once."""

LINGER_S = 2.0
"""How long a pod may be silent once the local side has sent its last."""


class Link:
    """A local connection and a channel, for `run` to join.

    Neither side is read while the other takes nothing: what is on the way is bounded by the
    buffers of the sockets. The channel cannot be half closed: where the local side has ended, it
    still gets what the pod has to say, and the channel is closed when that ends, or pauses for
    `LINGER_S`.
    """

    def __init__(self, reader: StreamReader, writer: StreamWriter, channel: PortChannel) -> None:
        self._reader = reader
        self._writer = writer
        self._channel = channel
        self._heard = 0.0
        self.reached = False
        """Whether the pod has sent anything."""

    async def run(self) -> None:
        """Pass bytes on until both sides have ended. Raises `ForwardError`."""
        up = asyncio.create_task(self._up())
        down = asyncio.create_task(self._down())
        try:
            await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
            if not down.done():
                await self._wait_for_rest(down)
            if down.done():
                down.result()
        finally:
            await _cancel(up, down)
        await self._channel.close()

    async def _up(self) -> None:
        with suppress(ConnectionError):
            while content := await self._reader.read(CHUNK):
                await self._channel.write(content)

    async def _down(self) -> None:
        with suppress(ConnectionError):
            while content := await self._channel.read():
                self.reached = True
                self._heard = asyncio.get_running_loop().time()
                self._writer.write(content)
                await self._writer.drain()

    async def _wait_for_rest(self, down: asyncio.Task[None]) -> None:
        loop = asyncio.get_running_loop()
        ended = loop.time()
        while not down.done():
            left = max(ended, self._heard) + LINGER_S - loop.time()
            if left <= 0:
                return
            await asyncio.wait((down,), timeout=left)


async def _cancel(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
