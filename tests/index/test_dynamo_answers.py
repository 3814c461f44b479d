"""Dynamo's answers, and everything else that may stand at its port."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvctl.errors import UsageError
from kvctl.index import IndexStoreError, Prompt
from kvctl.index.dynamo import DynamoIndex
from kvctl.index.dynamo.answers import Dump, QueryAnswer, Workers, decode

WORKER = {
    "instance_id": 3,
    "status": "active",
    "model_name": "org/m:1",
    "routing_group": "default",
    "block_size": 16,
    "endpoints": {"0": "tcp://10.0.0.7:5557", "1": "tcp://10.0.0.7:5558"},
    "listeners": {},
}


def stored(worker: int, rank: int, *hashes: int, tier: str = "device") -> dict[str, Any]:
    blocks = [{"block_hash": each, "tokens_hash": 1} for each in hashes]
    data = {"stored": {"parent_hash": None, "blocks": blocks}}
    event = {"event_id": 0, "dp_rank": rank, "data": data}
    return {"worker_id": worker, "storage_tier": tier, "event": event}


class Answering(BaseHTTPRequestHandler):
    """Answers each path with what the server was given for it."""

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self._body()))
        status, body = self.server.answers.get(self.path, (404, b"no such path"))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.do_GET()

    def _body(self) -> Any:
        length = int(self.headers.get("Content-Length") or 0)
        return json.loads(self.rfile.read(length)) if length else None

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Any]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        server.answers = {
            "/workers": (200, json.dumps([WORKER]).encode()),
            "/dump": (
                200,
                json.dumps(
                    {
                        "org/m:1:default": {
                            "block_size": 16,
                            "events": [
                                stored(3, 0, 1, 2),
                                stored(3, 1, 1, tier="host_pinned"),
                                stored(4, 0, 9, tier="tape"),
                            ],
                        }
                    }
                ).encode(),
            ),
        }
        server.asked = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def index(server: Any) -> Iterator[DynamoIndex]:
    names = {"tcp://10.0.0.7:5557": "pod-a"}
    with DynamoIndex(
        f"dynamo+http://127.0.0.1:{server.server_port}", names=names, timeout=5
    ) as index:
        yield index


def test_ranks_tiers_and_unknown_workers_are_told_apart(index: DynamoIndex) -> None:
    assert [(s.pod, s.rank, s.model, s.media) for s in index.summary().streams] == [
        ("dynamo/4", 0, "org/m:1", {"TAPE": 1}),
        ("pod-a", 0, "org/m:1", {"GPU": 2}),
        ("pod-a", 1, "org/m:1", {"CPU": 1}),
    ]
    assert index.stored_before("pod-a", 1, None) == 1


def test_the_best_rank_and_the_medium_come_from_the_answer(server: Any, index: DynamoIndex) -> None:
    answer = {
        "scores": {"3": {"0": 16, "1": 48}},
        "instances": {"3": {"longest_matched": 64, "gpu": 48, "cpu": 64, "disk": 64}},
    }
    server.answers["/query"] = (200, json.dumps(answer).encode())
    match = index.match(Prompt(tuple(range(100)), None, "adapter", ("salt",)))["pod-a"]
    assert (match.rank, match.blocks, match.blocks_any_medium, match.prompt_blocks) == (1, 3, 4, 6)
    path, body = server.asked[-1]
    assert path == "/query"
    assert (body["lora_name"], body["cache_salt"]) == ("adapter", "salt")


def test_a_worker_that_cannot_be_registered_again_is_named_with_the_cure(
    server: Any, index: DynamoIndex
) -> None:
    server.answers["/unregister"] = (200, b"{}")
    server.answers["/register"] = (500, b"boom")
    with pytest.raises(IndexStoreError, match=r"answers 500: boom \(POST /register \{.*5557"):
        index.purge("pod-a", 0)


def test_of_two_that_register_at_once_the_second_is_content(
    server: Any, index: DynamoIndex
) -> None:
    server.answers["/unregister"] = (404, b"gone")
    server.answers["/register"] = (409, b"already registered")
    assert index.purge("pod-a", 1) == 1
    bodies = [body for path, body in server.asked if path == "/register"]
    assert bodies == [
        {
            "instance_id": 3,
            "model_name": "org/m:1",
            "routing_group": "default",
            "dp_rank": 1,
            "endpoint": "tcp://10.0.0.7:5558",
            "block_size": 16,
        }
    ]


@pytest.mark.parametrize(
    ("path", "status", "body", "told"),
    [
        ("/workers", 200, b"<html>", "answers what Dynamo's indexer does not"),
        ("/workers", 200, b'{"a": 1}', "answers what Dynamo's indexer does not"),
        ("/dump", 200, b'{"m:d": {"events": 1}}', "answers what Dynamo's indexer does not"),
        ("/workers", 404, b"not here", "answers 404: not here"),
        ("/dump", 500, b"boom", "answers 500: boom"),
    ],
)
def test_anything_else_is_one_clear_error(
    server: Any, index: DynamoIndex, path: str, status: int, body: bytes, told: str
) -> None:
    server.answers[path] = (status, body)
    with pytest.raises(IndexStoreError, match=told):
        index.summary()


def test_nobody_at_the_port_is_named_with_the_remedy() -> None:
    with (
        DynamoIndex("dynamo+http://127.0.0.1:1", timeout=2) as index,
        pytest.raises(IndexStoreError, match=r"no connection \(is it up"),
    ):
        index.summary()


def test_a_url_of_another_kind_is_refused() -> None:
    with pytest.raises(UsageError, match=r"dynamo\+http"):
        DynamoIndex("http://127.0.0.1:8090")


def read_or_refuse(body: bytes) -> None:
    """No exception but the one that says what is wrong."""
    for kind in (Workers, Dump, QueryAnswer):
        with contextlib.suppress(ValueError):
            decode(body, kind)


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(body: bytes) -> None:
    read_or_refuse(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(JSON)
def test_no_json_breaks_the_reader(value: Any) -> None:
    read_or_refuse(json.dumps(value).encode())
