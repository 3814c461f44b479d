"""What the tests of streams share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Sockets and threads of a test; closed in the reverse order at its end."""
    with ExitStack() as stack:
        yield stack
