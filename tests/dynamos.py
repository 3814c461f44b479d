"""A real Dynamo standalone indexer, for tests marked `dynamo`."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

INSTALLED = importlib.util.find_spec("dynamo") is not None


class Indexer:
    """One indexer process."""

    def __init__(self, log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"dynamo+http://127.0.0.1:{self.port}"
        self.api = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "dynamo.indexer", "--port", str(self.port)]
        with log.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out)
        deadline = time.monotonic() + 30
        while True:
            try:
                if requests.get(f"{self.api}/health", timeout=1).ok:
                    return
            except requests.ConnectionError:
                pass
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)

    def register(self, instance: int, events: str, replay: str | None, **more: object) -> None:
        body = {"instance_id": instance, "endpoint": events, "block_size": 16, "model_name": "tiny"}
        if replay is not None:
            body["replay_endpoint"] = replay
        requests.post(f"{self.api}/register", json=body | more, timeout=5).raise_for_status()

    def entries(self) -> int:
        """How many blocks it holds, by its own dump."""
        dump = requests.get(f"{self.api}/dump", timeout=5).json()
        return sum(
            len(event["event"]["data"]["stored"]["blocks"])
            for model in dump.values()
            for event in model["events"]
        )

    def wait_for(self, entries: int) -> None:
        deadline = time.monotonic() + 20
        while (held := self.entries()) != entries:
            assert time.monotonic() < deadline, f"{held} entries, not {entries}"
            time.sleep(0.05)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)


@pytest.fixture
def dynamo_indexer(tmp_path: Path) -> Iterator[Indexer]:
    if not INSTALLED:
        pytest.skip("ai-dynamo-runtime is not installed")
    indexer = Indexer(tmp_path / "dynamo.log")
    yield indexer
    indexer.stop()
