"""Reads a redaction key from a file."""

from __future__ import annotations

from pathlib import Path

from kvctl.errors import KvctlError

_LEAST_BYTES = 16


def read_key(path: Path) -> bytes:
    """The file's bytes; refused when too short to be a secret, or unreadable."""
    try:
        key = path.read_bytes()
    except OSError as error:
        raise KvctlError(f"cannot read the key file {path}: {error.strerror}") from None
    if len(key) < _LEAST_BYTES:
        raise KvctlError(
            f"the key file {path} holds {len(key)} bytes, too few for a secret",
            remedy=f"at least {_LEAST_BYTES}: head -c 32 /dev/urandom > {path}",
        )
    return key
