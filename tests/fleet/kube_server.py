"""A local HTTP server that answers for pods as a Kubernetes API server does.

Lists in pages that stay a consistent snapshot, watches as lines of JSON in chunks, `Status`
objects for errors, resourceVersions that count up, a history that can be forgotten (410).
"""

from __future__ import annotations

import base64
import copy
import http.server
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "s3cret"
_PATH = re.compile(r"/api/v1(?:/namespaces/(?P<namespace>[^/]+))?/pods")
_PORTFORWARD = re.compile(
    r"/api/v1/namespaces/(?P<namespace>[^/]+)/pods/(?P<name>[^/]+)/portforward"
)
_REASONS = {400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound",
            410: "Expired", 500: "InternalError", 503: "ServiceUnavailable"}  # fmt: skip

Object = dict[str, Any]


def pod_object(
    name: str,
    *,
    namespace: str = "prod",
    ip: str | None = "10.0.0.1",
    phase: str = "Running",
    labels: dict[str, str] | None = None,
    args: list[str] | None = None,
    command: list[str] | None = None,
    containers: list[Object] | None = None,
    deleting: bool = False,
) -> Object:
    """A pod as the API shows it, with a good deal of what kvctl has no use for."""
    metadata: Object = {
        "name": name, "namespace": namespace, "uid": f"uid-{name}-{time.time_ns()}",
        "labels": {"app": "vllm"} if labels is None else labels,
        "creationTimestamp": "2026-06-01T10:00:00Z", "ownerReferences": [],
    }  # fmt: skip
    if deleting:
        metadata |= {
            "deletionTimestamp": "2026-06-01T11:00:00Z",
            "deletionGracePeriodSeconds": 30,
        }
    engine: Object = {"name": "engine", "image": "vllm/vllm-openai:v0.32.0", "resources": {}}
    if args is not None:
        engine["args"] = args
    if command is not None:
        engine["command"] = command
    status: Object = {"phase": phase, "conditions": [], "qosClass": "Guaranteed"}
    if ip is not None:
        status |= {"podIP": ip, "podIPs": [{"ip": ip}], "hostIP": "192.168.0.1"}
    spec = {"containers": containers or [engine], "nodeName": "gpu-1", "restartPolicy": "Always"}
    return {"metadata": metadata, "spec": spec, "status": status}


class KubeServer:
    """Runs from its making to `close`. Change what is there with `put` and `remove`."""

    def __init__(
        self, tls: tuple[Path, Path] | None = None, *, port: int = 0, version: int = 1000
    ) -> None:
        self._changed = threading.Condition()
        self._pods: dict[str, Object] = {}
        self._version = version
        self._history: list[tuple[int, str, Object | None, Object]] = []
        self._oldest = self._version
        self._pages: dict[str, tuple[int, list[Object]]] = {}
        self._answers: list[tuple[str | None, int, bytes]] = []
        self._watchers: list[socket.socket] = []
        self._connections: set[socket.socket] = set()
        self._closing = False
        self.forbidden: set[tuple[str, str | None]] = set()
        self.bookmarks = False
        self.page: int | None = None
        self.on_page: Callable[[], None] | None = None
        self.requests: list[tuple[str, str | None, dict[str, str]]] = []
        self.portforward: Callable[[http.server.BaseHTTPRequestHandler, str, str], None] | None = (
            None
        )
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True
        scheme = "http"
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            scheme = "https"
        self.port = self._server.server_address[1]
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def __enter__(self) -> KubeServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop serving, at once. May be called again."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._changed.notify_all()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        with self._changed:
            connections = tuple(self._connections)
        for each in connections:
            _cut(each)

    def put(self, pod: Object) -> None:
        """Add a pod, or change the one that has its name."""
        with self._changed:
            self._version += 1
            pod = copy.deepcopy(pod)
            pod["metadata"]["resourceVersion"] = str(self._version)
            key = _key(pod)
            self._history.append((self._version, key, self._pods.get(key), pod))
            self._pods[key] = pod
            self._changed.notify_all()

    def has(self, name: str, namespace: str = "prod") -> bool:
        with self._changed:
            return f"{namespace}/{name}" in self._pods

    def remove(self, name: str, namespace: str = "prod") -> None:
        with self._changed:
            self._version += 1
            gone = copy.deepcopy(self._pods.pop(f"{namespace}/{name}"))
            gone["metadata"]["resourceVersion"] = str(self._version)
            self._history.append((self._version, f"{namespace}/{name}", gone, {}))
            self._changed.notify_all()

    def forget(self) -> None:
        """Compact: what was before now can be watched, and listed on, no more."""
        with self._changed:
            self._version += 1
            self._history.clear()
            self._pages.clear()
            self._oldest = self._version

    def answer_next(self, status: int, body: bytes = b"", *, verb: str | None = None) -> None:
        """Answer the next request (of that verb) so, whatever it is. May be called repeatedly."""
        with self._changed:
            self._answers.append((verb, status, body))

    def cut_watches(self) -> None:
        """Break every watch off, as a proxy does that has waited long enough."""
        with self._changed:
            watchers, self._watchers = self._watchers, []
        for each in watchers:
            _cut(each)

    @property
    def watches(self) -> int:
        """How many watches are under way."""
        with self._changed:
            return len(self._watchers)

    def asked(self, verb: str) -> list[dict[str, str]]:
        """The parameters of every request of that verb."""
        with self._changed:
            return [parameters for each, _, parameters in self.requests if each == verb]

    # What follows is the server's side.

    def take_answer(self, verb: str) -> tuple[int, bytes] | None:
        with self._changed:
            for number, (wanted, status, body) in enumerate(self._answers):
                if wanted in (None, verb):
                    del self._answers[number]
                    return status, body
        return None

    def note(self, verb: str, namespace: str | None, parameters: dict[str, str]) -> None:
        with self._changed:
            self.requests.append((verb, namespace, parameters))

    def list_page(self, namespace: str | None, parameters: dict[str, str]) -> Object | None:
        """One page; None where the continue token has expired."""
        matches = selector(parameters.get("labelSelector", ""))
        token = parameters.get("continue")
        with self._changed:
            if token is None:
                version = self._version
                rest = [
                    copy.deepcopy(pod)
                    for key, pod in sorted(self._pods.items())
                    if namespace in (None, pod["metadata"]["namespace"]) and matches(pod)
                ]
            elif token in self._pages:
                version, rest = self._pages.pop(token)
            else:
                return None
            limit = self.page or int(parameters.get("limit", "0")) or len(rest)
            items, rest = rest[:limit], rest[limit:]
            metadata: Object = {"resourceVersion": str(version)}
            if rest:
                name = base64.b64encode(f"{version}:{len(self._pages)}:{len(rest)}".encode())
                self._pages[name.decode()] = (version, rest)
                metadata |= {"continue": name.decode(), "remainingItemCount": len(rest)}
        if rest and self.on_page is not None:
            self.on_page()
        return {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items}

    def watch(
        self, namespace: str | None, parameters: dict[str, str], send: Callable[[Object], None]
    ) -> None:
        matches = selector(parameters.get("labelSelector", ""))
        version = int(parameters.get("resourceVersion") or self._version)
        until = time.monotonic() + float(parameters.get("timeoutSeconds", "300"))
        if version < self._oldest:
            send({"type": "ERROR", "object": status(410, "too old resource version")})
            return
        while time.monotonic() < until:
            with self._changed:
                self._changed.wait(0.05)
                if self._closing:
                    return
                news = [each for each in self._history if each[0] > version]
                seen = self._version
                bookmark, self.bookmarks = self.bookmarks, False
            for _, _, before, after in news:
                event = _event(before, after, namespace, matches)
                if event is not None:
                    send(event)
            if bookmark:
                meta = {"resourceVersion": str(seen), "creationTimestamp": None}
                pod = {"kind": "Pod", "apiVersion": "v1", "metadata": meta,
                       "spec": {"containers": None}, "status": {}}  # fmt: skip
                send({"type": "BOOKMARK", "object": pod})
            version = seen

    def watching(self, connection: socket.socket, begins: bool) -> None:
        with self._changed:
            if begins:
                self._watchers.append(connection)
            elif connection in self._watchers:
                self._watchers.remove(connection)

    def connected(self, connection: socket.socket, begins: bool) -> None:
        with self._changed:
            (self._connections.add if begins else self._connections.discard)(connection)


def status(code: int, message: str) -> Object:
    """A `Status` object."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": _REASONS.get(code, "Unknown"), "code": code}  # fmt: skip


def selector(text: str) -> Callable[[Object], bool]:
    """A label selector of equalities and existences. Raises ValueError for anything else."""
    tests: list[Callable[[dict[str, str]], bool]] = []
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"(!?)([A-Za-z0-9_./-]+)(?:(==|=|!=)([A-Za-z0-9_.-]*))?", part)
        if match is None:
            raise ValueError(f"unable to parse requirement: found '{part}', expected: identifier")
        negated, key, operator, value = match.groups()
        if operator is None:
            tests.append(lambda labels, key=key, no=bool(negated): (key in labels) != no)
        elif operator == "!=":
            tests.append(lambda labels, key=key, value=value: labels.get(key) != value)
        else:
            tests.append(lambda labels, key=key, value=value: labels.get(key) == value)
    return lambda pod: all(test(pod["metadata"].get("labels") or {}) for test in tests)


def write_kubeconfig(
    path: Path,
    url: str,
    *,
    name: str = "lab",
    namespace: str | None = "prod",
    user: Object | None = None,
    more: Object | None = None,
) -> Path:
    """A kubeconfig with one context, its current one. JSON is YAML."""
    context: Object = {"cluster": name, "user": name}
    if namespace is not None:
        context["namespace"] = namespace
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1", "kind": "Config", "current-context": name,
                "clusters": [{"name": name, "cluster": {"server": url, **(more or {})}}],
                "users": [{"name": name, "user": {"token": TOKEN} if user is None else user}],
                "contexts": [{"name": name, "context": context}],
            }
        )
    )  # fmt: skip
    return path


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _key(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _event(
    before: Object | None,
    after: Object,
    namespace: str | None,
    matches: Callable[[Object], bool],
) -> Object | None:
    """What a watch with a selector sees of a change: a pod that stops matching is deleted."""

    def seen(pod: Object | None) -> bool:
        return (
            bool(pod)
            and pod is not None
            and namespace in (None, pod["metadata"]["namespace"])
            and matches(pod)
        )

    kind = {"kind": "Pod", "apiVersion": "v1"}
    if seen(after):
        return {"type": "MODIFIED" if seen(before) else "ADDED", "object": kind | after}
    if seen(before) and before is not None:
        gone = copy.deepcopy(before)
        if after:
            gone["metadata"]["resourceVersion"] = after["metadata"]["resourceVersion"]
        return {"type": "DELETED", "object": kind | gone}
    return None


def _handler(server: KubeServer) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            server.connected(self.connection, True)

        def finish(self) -> None:
            server.connected(self.connection, False)
            with suppress(OSError):
                super().finish()

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            parameters = {key: values[-1] for key, values in parse_qs(url.query).items()}
            watches = parameters.get("watch") in ("true", "True", "1")
            verb = "watch" if watches else "list"
            forward = _PORTFORWARD.fullmatch(url.path)
            if forward is not None and server.portforward is not None:
                self.close_connection = True
                if self._known():
                    server.portforward(self, forward["namespace"], forward["name"])
                return
            path = _PATH.fullmatch(url.path)
            namespace = path["namespace"] if path else None
            server.note(verb, namespace, parameters)
            scripted = server.take_answer(verb)
            if scripted is not None:
                self._send(*scripted)
            elif not self._known():
                pass
            elif path is None:
                self._fail(404, "the server could not find the requested resource")
            elif (verb, namespace) in server.forbidden:
                where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
                self._fail(
                    403,
                    f'pods is forbidden: User "ops" cannot {verb} resource "pods" in API group '
                    f'"" {where}',
                )
            else:
                try:
                    selector(parameters.get("labelSelector", ""))
                except ValueError as error:
                    self._fail(400, str(error))
                    return
                if watches:
                    self._watch(namespace, parameters)
                    return
                page = server.list_page(namespace, parameters)
                if page is None:
                    self._fail(410, "The provided continue parameter is too old")
                else:
                    self._send(200, json.dumps(page).encode())

        def _known(self) -> bool:
            if self.headers.get("Authorization", "").lower() == f"bearer {TOKEN}":
                return True
            self._fail(401, "Unauthorized")
            return False

        def _watch(self, namespace: str | None, parameters: dict[str, str]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()

            def send(event: Object) -> None:
                self._chunk(json.dumps(event).encode() + b"\n")

            server.watching(self.connection, True)
            try:
                server.watch(namespace, parameters, send)
                self._chunk(b"")
            except OSError:
                self.close_connection = True
            finally:
                server.watching(self.connection, False)

        def _chunk(self, data: bytes) -> None:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()

        def _fail(self, code: int, message: str) -> None:
            self._send(code, json.dumps(status(code, message)).encode())

        def _send(self, code: int, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
