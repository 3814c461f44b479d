"""The peers of kvctl's index: NVIDIA Dynamo's, from the package `ai-dynamo-runtime`."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import requests
import zmq
from bench_rss import resident_bytes
from bench_workload import BLOCK_SIZE, MODEL, PODS, WIRE_FORMS

from kvctl.events import (
    BlockStored,
    Event,
    EventBatch,
    WireBatch,
    decode_batch,
    encode_batch,
    encode_seq,
)

_READY_S = 30.0
_DONE_S = 300.0


def missing() -> str | None:
    """Why the peers cannot be measured, None if they can."""
    try:
        import dynamo.llm
    except ImportError as error:
        return f"{error}; pip install 'kvctl[bench]'"
    return None if hasattr(dynamo.llm, "RadixTree") else "dynamo.llm has no RadixTree"


# -- the RadixTree, in this process ---------------------------------------------------------------


def radix_events(wires: Sequence[WireBatch]) -> Iterator[tuple[int, bytes]]:
    """(worker, JSON) of every event: what `RadixTree.apply_event` takes."""
    for wire in wires:
        worker = PODS.index(wire.pod)
        for event in decode_batch(wire.payload).events:
            told = {"event_id": wire.seq, "dp_rank": wire.rank, "data": _radix_data(event)}
            yield worker, json.dumps(told).encode()


def _radix_data(event: Event) -> dict[str, Any]:
    from dynamo.llm import compute_block_hash_for_seq

    if not isinstance(event, BlockStored):
        return {"removed": {"block_hashes": event.block_hashes}}  # type: ignore[union-attr]
    tokens = compute_block_hash_for_seq(event.token_ids, BLOCK_SIZE)
    blocks = [
        {"block_hash": block_hash, "tokens_hash": tokens_hash}
        for block_hash, tokens_hash in zip(event.block_hashes, tokens, strict=True)
    ]
    return {"stored": {"parent_hash": event.parent_block_hash, "blocks": blocks}}


def new_radix_tree() -> Any:
    from dynamo.llm import RadixTree

    return RadixTree()


def radix_match(tree: Any, prompt: list[int]) -> dict[Any, int]:
    """Per worker, how many leading blocks of the prompt it holds."""
    from dynamo.llm import compute_block_hash_for_seq

    found = tree.find_matches(compute_block_hash_for_seq(prompt, BLOCK_SIZE))
    return dict(found.scores)


# -- the standalone indexer, over ZMQ -------------------------------------------------------------


class Indexer:
    """One process of it, subscribed to one publisher per pod."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self._process = process
        self._url = url
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._sockets = {pod: self._subscribed(number) for number, pod in enumerate(PODS)}
        self._seqs = dict.fromkeys(PODS, 0)

    def take_in(self, wires: Sequence[WireBatch], form: str) -> float:
        """Publish the batches; returns the seconds until each pod's last one has been applied."""
        last = [BLOCK_SIZE - 1] * BLOCK_SIZE
        began = time.perf_counter()
        for wire in wires:
            self._publish(wire.pod, wire.payload)
        for number, pod in enumerate(PODS):
            end = BlockStored([2**62 + number], None, last, BLOCK_SIZE, medium="GPU", group_idx=0)
            self._publish(pod, encode_batch(EventBatch(1.0, [end], 0), WIRE_FORMS[form]))
        _wait(lambda: len(self.match(last)) == len(PODS), _DONE_S, "the indexer did not get done")
        return time.perf_counter() - began

    def match(self, prompt: Sequence[int]) -> dict[str, Any]:
        """The scores by worker."""
        asked = {"token_ids": list(prompt), "model_name": MODEL}
        answer = requests.post(f"{self._url}/query", json=asked, timeout=_READY_S)
        return dict(answer.json().get("scores", {})) if answer.ok else {}

    def forget(self, pod: str) -> float:
        """Have one pod unregistered; returns the seconds it took."""
        began = time.perf_counter()
        asked = {"instance_id": PODS.index(pod), "model_name": MODEL}
        requests.post(f"{self._url}/unregister", json=asked, timeout=_READY_S).raise_for_status()
        return time.perf_counter() - began

    def resident(self) -> int:
        """Bytes of its resident memory."""
        return resident_bytes(self._process.pid)

    def close(self) -> None:
        self._context.destroy(linger=0)

    def _publish(self, pod: str, payload: bytes) -> None:
        seq = self._seqs[pod]
        self._seqs[pod] = seq + 1
        self._sockets[pod].send_multipart([b"", encode_seq(seq), payload])

    def _subscribed(self, number: int) -> zmq.Socket[bytes]:
        # An XPUB is told of the subscription: nothing is published before.
        publisher = self._context.socket(zmq.XPUB)
        publisher.sndhwm = 0
        port = publisher.bind_to_random_port("tcp://127.0.0.1")
        told = {
            "instance_id": number,
            "endpoint": f"tcp://127.0.0.1:{port}",
            "model_name": MODEL,
            "block_size": BLOCK_SIZE,
        }
        requests.post(f"{self._url}/register", json=told, timeout=_READY_S).raise_for_status()
        if not publisher.poll(int(_READY_S * 1000)):
            raise RuntimeError("the indexer did not subscribe")
        publisher.recv()
        return publisher


@contextmanager
def running_indexer() -> Iterator[Indexer]:
    """A fresh one, ended at the end."""
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [sys.executable, "-m", "dynamo.indexer", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait(lambda: _healthy(url), _READY_S, "dynamo.indexer did not start")
        indexer = Indexer(process, url)
        try:
            yield indexer
        finally:
            indexer.close()
    finally:
        process.terminate()
        process.wait()


def _healthy(url: str) -> bool:
    try:
        return requests.get(f"{url}/health", timeout=1.0).ok
    except requests.RequestException:
        return False


def _wait(condition: Callable[[], bool], seconds: float, complaint: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(complaint)
        time.sleep(0.01)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
