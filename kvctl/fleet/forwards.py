"""Local ports that lead into pods, through the API server of their cluster."""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from kvctl.errors import KvctlError
from kvctl.fleet.endpoint import api_port, parse_endpoint
from kvctl.fleet.forwardfaults import TOO_MANY_FILES, FaultTeller, ForwardError, SilentPortError
from kvctl.fleet.forwardport import ForwardedPort, some_turns
from kvctl.fleet.kubeconfig import Cluster
from kvctl.fleet.pod import Pod, PodStream, Role
from kvctl.fleet.portchannel import PortOpener

HOST = "127.0.0.1"
"""Where the local ports are: no other host can reach them."""

_BACKLOG = 128
_STOP_S = 3.0


class Forwards:
    """Local ports for pods, served by one thread of their own until `close`.

    ``tell`` is called, in that thread, with a line about what has gone wrong.
    """

    def __init__(self, cluster: Cluster, tell: Callable[[str], None]) -> None:
        self._opener = PortOpener(cluster)
        self._teller = FaultTeller(tell)
        self._pods: dict[Pod, tuple[Pod, list[ForwardedPort]]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Forwards:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def use(self, cluster: Cluster) -> None:
        """Go on with the credentials of this one, which is the same cluster."""
        self._opener.cluster = cluster

    def reach(self, pod: Pod) -> Pod:
        """The pod with local ports to reach it by, the same each time until it is let go.

        Raises `KvctlError` where no more files can be opened.
        """
        if pod not in self._pods:
            if self._loop is None:
                self._start()
            sockets: dict[int, socket.socket] = {}
            roles: dict[int, Role] = {}
            try:
                for role, port in _ports(pod):
                    if port not in sockets:
                        roles[port] = role
                        sockets[port] = _listen(pod)
            except BaseException:
                for each in sockets.values():
                    each.close()
                raise
            ports = [self._port(pod, port, roles[port], each) for port, each in sockets.items()]
            for forwarded in ports:
                self._in_thread(forwarded.serve())
            local = {port: each.getsockname()[1] for port, each in sockets.items()}
            self._pods[pod] = (_reached(pod, local), ports)
        return self._pods[pod][0]

    def let_go(self, pod: Pod) -> None:
        """Close the ports of a pod, as it was before or after `reach`, and their connections."""
        for told, (reached, ports) in list(self._pods.items()):
            if pod in (told, reached):
                del self._pods[told]
                for each in ports:
                    self._in_thread(each.close())

    def keep(self, pods: Iterable[Pod]) -> None:
        """Let go of all pods but these."""
        kept = set(pods)
        for told, (reached, _) in list(self._pods.items()):
            if told not in kept and reached not in kept:
                self.let_go(told)

    def close(self) -> None:
        """Close every port and every connection. May be called again."""
        if self._thread is None:
            return
        ports = [port for _, ports in self._pods.values() for port in ports]
        self._pods.clear()
        self._in_thread(self._end(ports))
        self._thread.join(timeout=_STOP_S)
        self._loop = self._thread = None

    def _start(self) -> None:
        _allow_more_files()
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._mishap)
        self._thread = threading.Thread(
            target=_run, args=(self._loop,), name="kvctl-forwards", daemon=True
        )
        self._thread.start()

    def _in_thread(self, work: Coroutine[Any, Any, None]) -> None:
        if self._loop is None:
            work.close()
        else:
            asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _end(self, ports: Iterable[ForwardedPort]) -> None:
        await asyncio.gather(*(each.close() for each in ports))
        self._teller.finish()
        asyncio.get_running_loop().stop()

    def _port(self, pod: Pod, port: int, role: Role, listening: socket.socket) -> ForwardedPort:
        def failed(error: ForwardError) -> None:
            # An engine has no replay unless it is configured: see `Pod.assumed`.
            assumed = role == "replay" and role in pod.assumed
            if not (assumed and isinstance(error, SilentPortError)):
                self._teller.tell(error)

        return ForwardedPort(pod.name, port, role, listening, self._opener, failed)

    def _mishap(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What happens where nobody waits for it: accepting a connection, most of all."""
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            self._teller.tell(TOO_MANY_FILES)
            return
        self._teller.tell(
            ForwardError(
                f"port forwarding: {context.get('message')}: {error!r}",
                remedy="please report it",
                about=("mishap", str(context.get("message"))),
            )
        )


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        loop.run_until_complete(_finish())
    finally:
        loop.close()


async def _finish() -> None:
    """Leave nothing half done."""
    # asyncio loses the socket of a connection that is cancelled while it is made: it is made first.
    await some_turns()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await some_turns()  # what was aborted is closed by now


def _ports(pod: Pod) -> Iterator[tuple[Role, int]]:
    if pod.api is not None:
        yield "api", api_port(pod.api)
    for stream in pod.streams:
        yield "events", parse_endpoint(stream.events).port
        if stream.replay is not None:
            yield "replay", parse_endpoint(stream.replay).port


def _listen(pod: Pod) -> socket.socket:
    try:
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    except OSError as error:
        raise KvctlError(
            f"pod {pod.name}: no local port: {(error.strerror or str(error)).lower()}",
            remedy=TOO_MANY_FILES.remedy,
        ) from None
    listening.bind((HOST, 0))
    listening.listen(_BACKLOG)
    listening.setblocking(False)
    return listening


def _reached(pod: Pod, local: dict[int, int]) -> Pod:
    """The pod with the local ports ``local``, by the pod's own."""

    def via(endpoint: str) -> str:
        return f"tcp://{HOST}:{local[parse_endpoint(endpoint).port]}"

    def stream(each: PodStream) -> PodStream:
        replay = None if each.replay is None else via(each.replay)
        return replace(each, events_via=via(each.events), replay_via=replay)

    api = None
    if pod.api is not None:
        netloc = f"{HOST}:{local[api_port(pod.api)]}"
        api = urlsplit(pod.api)._replace(netloc=netloc).geturl()
    return replace(pod, api_via=api, streams=tuple(stream(each) for each in pod.streams))


def _allow_more_files() -> None:
    """Each connection takes three files of this process; a system allows 1024 before one asks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard != resource.RLIM_INFINITY else 65536
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, 65536), hard))
