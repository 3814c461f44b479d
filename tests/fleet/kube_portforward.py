"""The subresource `pods/NAME/portforward` of `KubeServer`: a real WebSocket (RFC 6455), with a
kubelet's channels, to real ports of this machine.

As a kubelet with containerd behind it: the upgrade is granted first; then the port is connected
to, and what is wrong with it told over the channel for errors; the first end of either side ends
the whole within a second.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import socket
import struct
import threading
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kube_server import KubeServer, status

PROTOCOLS = ("", "v4.channel.k8s.io")
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_COPY = 32 * 1024


class PortForwarding:
    """Makes a server forward the ports of its pods. A port is the same port of this machine, unless
    ``ports`` names another for (`prod/pod-a`, port)."""

    def __init__(self, server: KubeServer) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._open: set[WebSocket] = set()
        self.ports: dict[tuple[str, int], int] = {}
        self.forbidden: set[str] = set()
        self.refuse_with: tuple[int, bytes] | None = None
        self.say: str | None = None
        self.asked: list[tuple[str, int]] = []
        self.most = 0
        server.portforward = self._serve

    @property
    def open(self) -> int:
        """How many connections there are now."""
        with self._lock:
            return len(self._open)

    def cut(self) -> None:
        """Break every connection off, as a kubelet that is restarted does."""
        with self._lock:
            found = tuple(self._open)
        for each in found:
            each.cut()

    def _serve(
        self, handler: http.server.BaseHTTPRequestHandler, namespace: str, name: str
    ) -> None:
        pod = f"{namespace}/{name}"
        port = int(parse_qs(urlsplit(handler.path).query)["ports"][0])
        with self._lock:
            self.asked.append((pod, port))
        if self.refuse_with is not None:
            _answer(handler, *self.refuse_with)
        elif namespace in self.forbidden:
            message = (
                f'pods "{name}" is forbidden: User "ops" cannot get resource "pods/portforward" '
                f'in API group "" in the namespace "{namespace}"'
            )
            _fail(handler, 403, message)
        elif not self._server.has(name, namespace):
            _fail(handler, 404, f'pods "{name}" not found')
        elif handler.headers.get("Upgrade", "").lower() != "websocket":
            _fail(handler, 400, "Upgrade request required")
        else:
            websocket = WebSocket(handler)
            with self._lock:
                self._open.add(websocket)
                self.most = max(self.most, len(self._open))
            try:
                self._forward(websocket, pod, port)
            except OSError:
                pass  # cut off
            finally:
                websocket.cut()
                with self._lock:
                    self._open.discard(websocket)

    def _forward(self, websocket: WebSocket, pod: str, port: int) -> None:
        for channel in (0, 1):
            websocket.send(bytes([channel]) + struct.pack("<H", port))
        if self.say is not None:
            websocket.send(b"\1" + self.say.encode())
            websocket.close()
            return
        try:
            target = socket.create_connection(
                ("127.0.0.1", self.ports.get((pod, port), port)), timeout=5
            )
        except OSError as error:
            text = (
                f"error forwarding port {port} to pod 0f{port:x}, uid : failed to execute "
                f"portforward in network namespace: failed to connect to localhost:{port} inside "
                f"namespace, IPv4: dial tcp4 127.0.0.1:{port}: connect: {error.strerror.lower()}"
            )
            websocket.send(b"\1" + text.encode())
            websocket.close()
            return
        target.settimeout(None)
        ended = threading.Event()

        def to_client() -> None:
            with suppress(OSError):
                while data := target.recv(_COPY):
                    websocket.send(b"\0" + data)
            ended.set()
            with suppress(OSError):
                websocket.close()
                websocket.done.wait(1)
            websocket.cut()

        back = threading.Thread(target=to_client)
        back.start()
        try:
            while (message := websocket.receive()) is not None:
                if message[:1] == b"\0":
                    target.sendall(message[1:])
        except OSError:
            pass
        finally:
            websocket.done.set()
            with suppress(OSError):
                target.shutdown(socket.SHUT_WR)
            ended.wait(1)
            with suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)
            back.join()
            target.close()


class WebSocket:
    """The server's side of one. Raises `ConnectionError` where the client breaks the protocol."""

    def __init__(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        self._socket = handler.connection
        self._read = handler.rfile.read
        self._sending = threading.Lock()
        self._closing = False
        self.done = threading.Event()
        offered = [
            each.strip() for each in handler.headers.get("Sec-WebSocket-Protocol", "").split(",")
        ]
        chosen = next((each for each in offered if each in PROTOCOLS), None)
        key = handler.headers.get("Sec-WebSocket-Key", "")
        version = handler.headers.get("Sec-WebSocket-Version")
        if chosen is None or version != "13" or len(base64.b64decode(key)) != 16:
            _answer(handler, 403, b"")
            raise ConnectionError("no such protocol")
        accept = base64.b64encode(hashlib.sha1(key.encode() + _GUID).digest()).decode()
        handler.send_response(101)
        handler.send_header("Upgrade", "websocket")
        handler.send_header("Connection", "Upgrade")
        handler.send_header("Sec-WebSocket-Accept", accept)
        if chosen:
            handler.send_header("Sec-WebSocket-Protocol", chosen)
        handler.end_headers()
        handler.wfile.flush()

    def send(self, message: bytes) -> None:
        self._frame(_BINARY, message)

    def close(self) -> None:
        """Send the closing frame, once."""
        if not self._closing:
            self._closing = True
            self._frame(_CLOSE, struct.pack(">H", 1000))

    def cut(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def receive(self) -> bytes | None:
        """The next message, None at the end."""
        message = b""
        while True:
            code, final, payload = self._receive_frame()
            if code == _CLOSE:
                with suppress(OSError):
                    self.close()
                return None
            if code == _PING:
                self._frame(_PONG, payload)
            elif code in (_BINARY, _CONTINUATION):
                message += payload
                if final:
                    return message
            elif code != _PONG:
                raise ConnectionError(f"a frame of kind {code}")

    def _receive_frame(self) -> tuple[int, bool, bytes]:
        first, second = self._exactly(2)
        if not second & 0x80:
            raise ConnectionError("a client must mask")
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack(">H", self._exactly(2))
        elif length == 127:
            (length,) = struct.unpack(">Q", self._exactly(8))
        mask = self._exactly(4)
        payload = self._exactly(length)
        if length:
            repeated = (mask * (length // 4 + 1))[:length]
            number = int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")
            payload = number.to_bytes(length, "big")
        return first & 0x0F, bool(first & 0x80), payload

    def _exactly(self, size: int) -> bytes:
        data = self._read(size)
        if len(data) < size:
            raise ConnectionError("cut off")
        return data

    def _frame(self, code: int, payload: bytes) -> None:
        size = len(payload)
        if size < 126:
            head = struct.pack(">BB", 0x80 | code, size)
        elif size < 1 << 16:
            head = struct.pack(">BBH", 0x80 | code, 126, size)
        else:
            head = struct.pack(">BBQ", 0x80 | code, 127, size)
        with self._sending:
            self._socket.sendall(head + payload)


def _fail(handler: http.server.BaseHTTPRequestHandler, code: int, message: str) -> None:
    _answer(handler, code, json.dumps(status(code, message)).encode())


def _answer(handler: Any, code: int, body: bytes) -> None:
    handler.send_response(code)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)
