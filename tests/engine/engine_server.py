"""A small HTTP server that answers as an engine of a chosen version does (contracts, section 5).

It holds the state that the answers need and no cache: what an engine does with its cache is the
simulator's business.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

FLUSHED = "Cache flushed.\nPlease check backend logs for more details.\n"


@dataclass
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    @property
    def call(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(value: Any, status: int = 200) -> Answer:
        return Answer(status, json.dumps(value).encode())

    @staticmethod
    def text(value: str, status: int = 200, content_type: str = "text/plain") -> Answer:
        return Answer(status, value.encode(), content_type)


class EngineServer:
    """vLLM of ``version`` (minor number of 0.x), or SGLang where it is None.

    ``override`` maps a call (`GET /metrics`) to an `Answer` or a function of the request.
    """

    def __init__(self, version: int | None = 32) -> None:
        self.version = version
        self.dev_mode = True
        self.token = ""
        self.token_everywhere = False
        self.running_requests = False
        self.healthy = True
        self.prompt_details = False
        self.models = ["tiny", "ad1"]
        self.page: str | None = None
        self.level: int | None = None
        self.sleeping_tags: set[str] = set()
        self.paused = False
        self.counts: dict[str, int] = {}
        self.override: dict[str, Answer | Callable[[Seen], Answer]] = {}
        self.seen: list[Seen] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def port(self) -> int:
        return self._http.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def calls(self) -> list[str]:
        return [seen.call for seen in self.seen]

    def wrap(self, context: Any) -> None:
        """Speak TLS from now on."""
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True)

    def stop(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def answer(self, seen: Seen) -> Answer:
        told = self.override.get(seen.call)
        if told is not None:
            return told if isinstance(told, Answer) else told(seen)
        guarded = self.token_everywhere or seen.path.startswith("/v1/")
        if self.token and guarded and seen.headers.get("authorization") != f"Bearer {self.token}":
            return Answer.of({"error": "Unauthorized"}, 401)
        handlers = self._common() | (self._sglang() if self.version is None else self._vllm())
        if seen.call in handlers:
            return handlers[seen.call](seen)
        if seen.path in {call.partition(" ")[2] for call in handlers}:
            return Answer.of({"detail": "Method Not Allowed"}, 405)
        return Answer.of({"detail": "Not Found"}, 404)

    def _common(self) -> dict[str, Callable[[Seen], Answer]]:
        return {
            "GET /health": lambda _: Answer(200 if self.healthy else 503),
            "GET /v1/models": lambda _: Answer.of({"data": [{"id": name} for name in self.models]}),
            "POST /v1/completions": self._complete,
        }

    def _vllm(self) -> dict[str, Callable[[Seen], Answer]]:
        handlers: dict[str, Callable[[Seen], Answer]] = {"GET /metrics": self._metrics}
        if not self.dev_mode:
            return handlers
        handlers |= {
            "POST /reset_prefix_cache": self._reset,
            "POST /sleep": self._sleep,
            "POST /wake_up": self._wake,
            "GET /is_sleeping": lambda _: Answer.of({"is_sleeping": self.level is not None}),
        }
        if self.version is not None and self.version >= 32:
            handlers["GET /is_paused"] = lambda _: Answer.of(
                {"is_paused": self.paused or self.level is not None}
            )
        return handlers

    def _sglang(self) -> dict[str, Callable[[Seen], Answer]]:
        nothing = Answer(200, b"null")
        return {
            "POST /flush_cache": lambda _: (
                Answer.text("Flush cache failed.\n", 400)
                if self.running_requests
                else Answer.text(FLUSHED)
            ),
            "POST /release_memory_occupation": lambda _: nothing,
            "POST /resume_memory_occupation": lambda _: nothing,
        }

    def _since(self, minor: int, value: Any) -> Answer:
        told = self.version is not None and self.version >= minor
        return Answer.of(value) if told else Answer()

    def _reset(self, _: Seen) -> Answer:
        return self._since(26, {"success": not self.running_requests})

    def _sleep(self, seen: Seen) -> Answer:
        level = int(seen.query.get("level", ["1"])[0])
        if level not in (0, 1, 2):
            return Answer.of({"error": {"message": f"1 validation error: level {level}"}}, 400)
        self.level = level
        self.sleeping_tags = {"weights", "kv_cache"} if level else set()
        self.counts["sleep"] = self.counts.get("sleep", 0) + 1
        return self._since(32, {"status": "sleeping", "level": level})

    def _wake(self, seen: Seen) -> Answer:
        tags = seen.query.get("tags")
        self.sleeping_tags -= set(tags or self.sleeping_tags)
        self.counts["wake"] = self.counts.get("wake", 0) + 1
        if not self.sleeping_tags:
            self.level = None
        status = "sleeping" if self.sleeping_tags else "awake"
        return self._since(32, {"status": status, "tags": tags})

    def _complete(self, seen: Seen) -> Answer:
        asked = seen.json
        if asked["model"] not in self.models:
            told = f"The model `{asked['model']}` does not exist."
            return Answer.of({"error": {"message": told, "code": 404}}, 404)
        usage: dict[str, Any] = {"prompt_tokens": len(asked["prompt"]), "completion_tokens": 1}
        usage["prompt_tokens_details"] = {"cached_tokens": 32} if self.prompt_details else None
        return Answer.of({"choices": [], "usage": usage})

    def _metrics(self, _: Seen) -> Answer:
        page = self.page if self.page is not None else self._page()
        return Answer.text(page, content_type="text/plain; version=0.0.4")

    def _page(self) -> str:
        rows = {
            "awake": self.level is None,
            "weights_offloaded": self.level == 1,
            "discard_all": self.level == 2,
        }
        labels = 'engine="0",model_name="tiny"'
        page = ["# TYPE vllm:engine_sleep_state gauge", "process_start_time_seconds 1.7e+09"]
        page += [
            f'vllm:engine_sleep_state{{{labels},sleep_state="{row}"}} {float(on)}'
            for row, on in rows.items()
        ]
        page += [
            f'vllm:sleep_mode_operation_duration_seconds_count{{operation="{name}"}} {count}.0'
            for name, count in self.counts.items()
        ]
        return "\n".join(page) + "\n"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                parts = urlsplit(self.path)
                length = int(self.headers.get("Content-Length") or 0)
                seen = Seen(
                    self.command,
                    parts.path,
                    parse_qs(parts.query),
                    {name.lower(): value for name, value in self.headers.items()},
                    self.rfile.read(length),
                )
                engine.seen.append(seen)
                answer = engine.answer(seen)
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.content_type)
                self.send_header("Content-Length", str(len(answer.body)))
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.body)

            do_GET = do_POST = handle_any  # noqa: N815 - http.server's names

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler
