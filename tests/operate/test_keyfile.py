"""Redaction keys come from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvctl.errors import KvctlError
from kvctl.operate.keyfile import read_key


def test_a_key_is_the_files_bytes(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(bytes(range(32)))
    assert read_key(tmp_path / "key") == bytes(range(32))


def test_a_short_or_missing_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"secret")
    with pytest.raises(KvctlError, match="6 bytes, too few") as caught:
        read_key(tmp_path / "key")
    assert "/dev/urandom" in caught.value.remedy
    with pytest.raises(KvctlError, match="No such file"):
        read_key(tmp_path / "none")
