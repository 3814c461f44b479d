"""One port of a pod, reached through the API server: the subresource `pods/NAME/portforward`.

Each connection is a WebSocket of its own, sub-protocol `v4.channel.k8s.io`: a message's first byte
is its channel, 0 for data and 1 for the text of an error, and the first message of each channel
names the port in two bytes, the low one first (Kubernetes, kubelet/cri/streaming/portforward).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
import urllib.parse
from typing import TYPE_CHECKING, Any

from websockets.asyncio.client import connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidMessage,
    InvalidStatus,
    WebSocketException,
)
from websockets.typing import Subprotocol

from kvctl.fleet.forwardfaults import TOO_MANY_FILES, ForwardFaults
from kvctl.fleet.pod import Role

if TYPE_CHECKING:
    from kubernetes.client import Configuration
    from websockets.asyncio.client import ClientConnection

    from kvctl.fleet.kubeconfig import Cluster

SUBPROTOCOL = Subprotocol("v4.channel.k8s.io")

OPEN_S = 10.0
"""Seconds for the API server to answer."""

AT_ONCE = 32
"""How many connections are opened at the same time."""

PING_S = 20.0
"""Seconds between pings: proxies and load balancers cut what is silent for a minute."""

CLOSE_S = 1.0
"""Seconds for the other side to answer that it closes as well."""

MAX_MESSAGE = 4 * 1024 * 1024
"""Largest message taken, in bytes. A kubelet sends 32 KiB at most."""

_DATA, _ERROR = b"\0", 1


class PortChannel:
    """A connection to a port, made by `PortOpener.open`. For one reader and one writer."""

    def __init__(self, connection: ClientConnection, faults: ForwardFaults) -> None:
        self._connection = connection
        self._faults = faults
        self._header = faults.port.to_bytes(2, "little")
        self._begun: set[int] = set()

    async def read(self) -> bytes:
        """The next bytes from the pod; none at the end. Raises `ForwardError`."""
        while True:
            try:
                message = await self._connection.recv()
            except ConnectionClosed:
                return b""
            if not isinstance(message, bytes) or not message or message[0] > _ERROR:
                raise self._faults.garbled()
            channel, content = message[0], message[1:]
            if channel not in self._begun:
                if content != self._header:
                    raise self._faults.garbled()
                self._begun.add(channel)
            elif channel == _ERROR:
                raise self._faults.said(content.decode(errors="replace"))
            elif content:
                return content

    async def write(self, content: bytes) -> None:
        """Send bytes to the pod; waits while it takes none. At the end they go nowhere."""
        with contextlib.suppress(ConnectionClosed):
            await self._connection.send(_DATA + content)

    async def close(self) -> None:
        """Close the connection: in order, or where the other side does not answer, soon."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._connection.close()
        except TimeoutError:
            pass
        finally:
            self._connection.transport.abort()


class PortOpener:
    """Opens ports of a cluster's pods. ``cluster`` may be replaced: its credentials are used anew
    for each connection."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._trust: dict[tuple[object, ...], ssl.SSLContext] = {}
        self._credentials = asyncio.Lock()
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def open(self, pod: str, port: int, role: Role) -> PortChannel:
        """Connect to a port of a pod, `namespace/name`. Raises `ForwardError`.

        That nothing listens there is told by the channel's first `read`.
        """
        faults = ForwardFaults(self.cluster.who, self.cluster.server, pod, port, role)
        configuration: Configuration = self.cluster.client.configuration
        try:
            async with self._at_once:
                connection = await self._connect(configuration, pod, port)
        except InvalidStatus as error:
            response = error.response
            raise faults.refused(response.status_code, bytes(response.body)) from None
        except TimeoutError:
            raise faults.unreachable("no answer in time") from None
        except ssl.SSLError as error:
            raise faults.untrusted(error) from None
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise TOO_MANY_FILES from None
            raise faults.unreachable((error.strerror or str(error)).lower()) from None
        except ImportError as error:
            raise faults.unreachable(str(error)) from None
        except InvalidMessage:
            raise faults.unreachable("it broke the connection off") from None
        except WebSocketException as error:
            raise faults.no_websocket(str(error)) from None
        _keep_alive(connection.transport.get_extra_info("socket"))
        return PortChannel(connection, faults)

    async def _connect(self, configuration: Configuration, pod: str, port: int) -> ClientConnection:
        return await _Connect(
            _url(configuration.host, pod, port),
            subprotocols=[SUBPROTOCOL],
            additional_headers=await self._headers(configuration),
            user_agent_header="kvctl",
            compression=None,
            proxy=_proxy(configuration),
            open_timeout=OPEN_S,
            # An answer is not waited for: while the reader of the data is slow, nobody would see
            # it. That the other side is gone is found by the keepalive of TCP.
            ping_interval=PING_S,
            ping_timeout=None,
            close_timeout=CLOSE_S,
            max_size=MAX_MESSAGE,
            **self._tls(configuration),
        )

    async def _headers(self, configuration: Configuration) -> dict[str, str]:
        def current() -> dict[str, str]:
            # May run a credential plugin, where a token has expired.
            settings = configuration.auth_settings().values()
            return {each["key"]: each["value"] for each in settings if each["in"] == "header"}

        async with self._credentials:
            return await asyncio.to_thread(current)

    def _tls(self, configuration: Configuration) -> dict[str, Any]:
        if not configuration.host.startswith("https:"):
            return {}
        files = (
            configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file,
            configuration.verify_ssl, configuration.assert_hostname,
        )  # fmt: skip
        if files not in self._trust:
            self._trust[files] = _trust(configuration)
        found: dict[str, Any] = {"ssl": self._trust[files]}
        if configuration.tls_server_name:
            found["server_hostname"] = configuration.tls_server_name
        return found


class _Connect(connect):
    """Follows no redirect: the token goes to the API server and to no one else."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


def _url(server: str, pod: str, port: int) -> str:
    namespace, _, name = pod.partition("/")
    parts = urllib.parse.urlsplit(server)
    path = f"{parts.path.rstrip('/')}/api/v1/namespaces/{namespace}/pods/{name}/portforward"
    scheme = "wss" if parts.scheme == "https" else "ws"
    return urllib.parse.urlunsplit((scheme, parts.netloc, path, f"ports={port}", ""))


def _proxy(configuration: Configuration) -> str | None:
    from kubernetes.client.rest import should_bypass_proxies

    if should_bypass_proxies(configuration.host, configuration.no_proxy or ""):
        return None
    proxy: str | None = configuration.proxy
    return proxy


def _trust(configuration: Configuration) -> ssl.SSLContext:
    """As urllib3 makes it for the lists: who may be asked for pods may be asked for their ports."""
    from urllib3.util.ssl_ import create_urllib3_context

    context = create_urllib3_context(
        cert_reqs=ssl.CERT_REQUIRED if configuration.verify_ssl else ssl.CERT_NONE
    )
    context.check_hostname = configuration.verify_ssl and configuration.assert_hostname is not False
    if configuration.ssl_ca_cert:
        context.load_verify_locations(configuration.ssl_ca_cert)
    elif configuration.verify_ssl:
        context.load_default_certs()
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _keep_alive(connection: socket.socket | None) -> None:
    """Let the system find out that the other side is gone: a minute after it last heard of it."""
    if connection is None:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", 30),
        ("TCP_KEEPINTVL", 10),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", 60_000),
    ):
        if hasattr(socket, name):  # not every system has all of them
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
