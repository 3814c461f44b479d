"""The HTTP side of a simulated engine: vLLM's API server, as far as kvctl meets it."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kvctl.errors import KvctlError
from kvctl.sim.engine import RefusedError, SimulatedEngine

_MAX_BODY = 16 * 1024 * 1024
_JSON = "application/json"
# First versions of what older engines answer otherwise, or have not at all.
_RESET_TELLS = (0, 26)
_SLEEP_TELLS = (0, 32)
_PAUSE = (0, 32)

_Answer = tuple[int, bytes, str]


class HttpSide:
    """Serves an engine on loopback; ``on_die`` is called when `/sim/die` is asked for."""

    def __init__(self, engine: SimulatedEngine, on_die: Callable[[], None]) -> None:
        routes = Routes(engine, on_die)

        class Handler(_Handler):
            answer = staticmethod(routes.answer)

        try:
            self._server = _Server(("127.0.0.1", engine.config.http_port), Handler)
        except OSError as error:
            raise KvctlError(
                f"the simulated engine cannot bind port {engine.config.http_port}: "
                f"{error.strerror}",
                remedy="--port-base chooses other ports",
            ) from None
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), name="sim-http", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Close the port and every connection."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of ours."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answer: Callable[[str, str, dict[str, list[str]], dict[str, Any], _Handler], _Answer]

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def gone(self) -> bool:
        """Whether the client has closed its end."""
        try:
            readable, _, _ = select.select([self.connection], [], [], 0)
            return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the simulator's output is its user's."""

    def _serve(self, method: str) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(min(length, _MAX_BODY))
        url = urlsplit(self.path)
        try:
            value = json.loads(body) if body else {}
        except ValueError:
            value = None
        if isinstance(value, dict):
            query = parse_qs(url.query, keep_blank_values=True)
            status, data, kind = type(self).answer(method, url.path, query, value, self)
        else:
            status, data, kind = _error(400, "the body is no JSON object")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Routes:
    """Paths to calls of the engine."""

    def __init__(self, engine: SimulatedEngine, on_die: Callable[[], None]) -> None:
        self._engine = engine
        self._on_die = on_die
        post, get = "POST", "GET"
        self._routes: dict[str, tuple[str, Callable[[dict[str, list[str]]], _Answer], bool]] = {
            "/health": (get, lambda _query: (200, b"", _JSON), False),
            "/metrics": (get, self._metrics, False),
            "/v1/models": (get, self._models, False),
            "/reset_prefix_cache": (post, self._reset, True),
            "/sleep": (post, self._sleep, True),
            "/wake_up": (post, self._wake, True),
            "/is_sleeping": (get, lambda _q: _json({"is_sleeping": engine.is_sleeping}), True),
        }
        if engine.config.version >= _PAUSE:
            self._routes |= {
                "/release_kv_cache_memory": (post, self._release, True),
                "/pause": (post, self._pause, True),
                "/resume": (post, self._resume, True),
                "/is_paused": (get, lambda _q: _json({"is_paused": engine.is_paused}), True),
            }
        self._faults: dict[str, Callable[[dict[str, list[str]]], Any]] = {
            "/sim/drop": lambda q: engine.lose(
                int(_one(q, "batches", "1")), keep=_flag(q, "keep_in_buffer", default=True)
            ),
            "/sim/stall": lambda q: engine.stall(_flag(q, "on", default=True)),
            "/sim/slow": self._slow,
            "/sim/hold": lambda _q: engine.hold(True),
            "/sim/release": lambda _q: engine.hold(False),
            "/sim/oom-reset": lambda _q: engine.oom_reset(),
            "/sim/sleep-rank": lambda q: engine.sleep_rank(int(_one(q, "rank", "0"))),
            "/sim/restart": lambda _q: engine.restart(),
            "/sim/flush": self._flush,
            "/sim/die": lambda _q: threading.Thread(target=self._on_die).start(),
        }

    def answer(
        self,
        method: str,
        path: str,
        query: dict[str, list[str]],
        body: dict[str, Any],
        handler: _Handler,
    ) -> _Answer:
        """The answer to one request."""
        if self._engine.slow_s and not path.startswith("/sim/"):
            time.sleep(self._engine.slow_s)
        key = self._engine.config.api_key
        if (
            key is not None
            and path.startswith("/v1/")
            and handler.headers.get("Authorization") != f"Bearer {key}"
        ):
            return 401, json.dumps({"error": "Unauthorized"}).encode(), _JSON
        try:
            if path.startswith("/sim/"):
                return self._fault(path, query)
            if path == "/v1/completions":
                return self._complete(method, body, handler)
            known = self._routes.get(path)
            if known is None or (known[2] and not self._engine.config.dev_mode):
                return 404, b'{"detail":"Not Found"}', _JSON
            if method != known[0]:
                return 405, b'{"detail":"Method Not Allowed"}', _JSON
            return known[1](query)
        except RefusedError as error:
            return _error(error.status, str(error))
        except (ValueError, TypeError) as error:
            return _error(400, f"a parameter is wrong: {error}")

    def _complete(self, method: str, body: dict[str, Any], handler: _Handler) -> _Answer:
        if method != "POST":
            return 405, b'{"detail":"Method Not Allowed"}', _JSON
        config = self._engine.config
        model = body.get("model", config.model)
        if model not in (config.model, *config.loras):
            return _error(404, f"The model `{model}` does not exist.")
        rank = handler.headers.get("X-data-parallel-rank")
        done = self._engine.complete(
            _tokens(body.get("prompt")),
            max_tokens=int(body.get("max_tokens", 16)),
            lora=None if model == config.model else model,
            salt=body.get("cache_salt"),
            rank=None if rank is None else int(rank),
            output=body.get("sim_output"),
            gone=handler.gone,
        )
        usage = {
            "prompt_tokens": done.prompt_tokens,
            "completion_tokens": len(done.output),
            "total_tokens": done.prompt_tokens + len(done.output),
            "prompt_tokens_details": {"cached_tokens": done.cached_tokens},
        }
        choice = {
            "index": 0,
            "text": " ".join(map(str, done.output)),
            "finish_reason": done.finished,
        }
        return _json(
            {"object": "text_completion", "model": model, "choices": [choice], "usage": usage}
        )

    def _metrics(self, _query: dict[str, list[str]]) -> _Answer:
        return 200, self._engine.metrics.page(), "text/plain; version=0.0.4; charset=utf-8"

    def _models(self, _query: dict[str, list[str]]) -> _Answer:
        config = self._engine.config
        names = (config.model, *config.loras)
        return _json({"object": "list", "data": [{"id": name} for name in names]})

    def _reset(self, query: dict[str, list[str]]) -> _Answer:
        done = self._engine.reset(running_too=_flag(query, "reset_running_requests"))
        tells = self._engine.config.version >= _RESET_TELLS
        return _json({"success": done}) if tells else (200, b"", _JSON)

    def _sleep(self, query: dict[str, list[str]]) -> _Answer:
        level = int(_one(query, "level", "1"))
        self._engine.sleep(level, _one(query, "mode", "abort"))
        return self._told({"status": "sleeping", "level": level})

    def _wake(self, query: dict[str, list[str]]) -> _Answer:
        tags = query.get("tags", [])
        return self._told({"status": self._engine.wake(tags), "tags": tags or None})

    def _told(self, value: dict[str, Any]) -> _Answer:
        tells = self._engine.config.version >= _SLEEP_TELLS
        return _json(value) if tells else (200, b"", _JSON)

    def _release(self, _query: dict[str, list[str]]) -> _Answer:
        self._engine.release()
        return _json({"status": "released"})

    def _pause(self, query: dict[str, list[str]]) -> _Answer:
        self._engine.pause(
            clear_cache=_flag(query, "clear_cache", default=True),
            mode=_one(query, "mode", "abort"),
        )
        return _json({"status": "paused"})

    def _resume(self, _query: dict[str, list[str]]) -> _Answer:
        self._engine.resume()
        return _json({"status": "resumed"})

    def _fault(self, path: str, query: dict[str, list[str]]) -> _Answer:
        if path == "/sim/cache":
            ranks = self._engine.cache()
            for rank in ranks:
                rank["blocks"] = [
                    {"hash": h.hex() if isinstance(h, bytes) else str(h), "copies": copies}
                    for h, copies in rank["blocks"]
                ]
            return _json({"ranks": ranks})
        fault = self._faults.get(path)
        if fault is None:
            names = ", ".join(["/sim/cache", *self._faults])
            return _error(404, f"there is no {path}; there are {names}")
        fault(query)
        return _json({"ok": True})

    def _slow(self, query: dict[str, list[str]]) -> None:
        self._engine.slow_s = float(_one(query, "seconds", "1"))

    def _flush(self, query: dict[str, list[str]]) -> None:
        mode = _one(query, "mode", "step")
        if mode not in ("step", "immediate", "never-clear"):
            raise ValueError(f"no flush mode {mode!r}")
        self._engine.set_flush(mode)  # type: ignore[arg-type]


def _tokens(prompt: Any) -> list[int]:
    """Token ids as given; text becomes its bytes, so that equal text is equal tokens."""
    if isinstance(prompt, str):
        return list(prompt.encode())
    if isinstance(prompt, list) and all(type(token) is int for token in prompt):
        return prompt
    raise RefusedError(400, "the prompt is neither text nor a list of token ids")


def _one(query: dict[str, list[str]], name: str, default: str) -> str:
    return query.get(name, [default])[-1]


def _flag(query: dict[str, list[str]], name: str, *, default: bool = False) -> bool:
    return _one(query, name, str(default)).lower() in ("1", "true", "yes", "on")


def _json(value: Any) -> _Answer:
    return 200, json.dumps(value).encode(), _JSON


def _error(status: int, message: str) -> _Answer:
    body = {"error": {"message": message, "type": "BadRequestError", "code": status}}
    return status, json.dumps(body).encode(), _JSON
