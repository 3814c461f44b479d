"""What can be wrong with an index that lasts."""

from __future__ import annotations

from kvctl.errors import KvctlError


class IndexStoreError(KvctlError):
    """An index that cannot be opened, read or written."""
