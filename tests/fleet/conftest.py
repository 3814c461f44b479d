"""A cluster to ask: an API server on this machine, and a kubeconfig for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kube_server import KubeServer, write_kubeconfig


@pytest.fixture
def server() -> Iterator[KubeServer]:
    with KubeServer() as server:
        yield server


@pytest.fixture
def kubeconfig(server: KubeServer, tmp_path: Path) -> Path:
    return write_kubeconfig(tmp_path / "kubeconfig", server.url)
