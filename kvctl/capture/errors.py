"""What can be wrong with a capture file."""

from __future__ import annotations

from kvctl.errors import KvctlError


class CaptureError(KvctlError):
    """A file that is no capture, or that cannot be read or written."""
