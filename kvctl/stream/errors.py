"""What can be wrong with a stream's endpoints."""

from __future__ import annotations

from kvctl.errors import KvctlError


class StreamError(KvctlError):
    """An endpoint that cannot be used as it was given."""
