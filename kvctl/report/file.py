"""Writes a report to a file that only its owner can read: it names pods."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from kvctl.errors import KvctlError

_MODE = 0o600


class ReportFileError(KvctlError):
    """A report's file exists, or cannot be written."""


def check_target(path: Path, *, force: bool) -> None:
    """Whether the file may be made, before the work is done. Raises `ReportFileError`."""
    if not force and os.path.lexists(path):
        raise ReportFileError(f"{path} exists", remedy="--force overwrites it")
    if path.is_dir():
        raise ReportFileError(f"{path} is a folder", remedy="name a file in it")
    if not path.parent.is_dir():
        raise ReportFileError(
            f"cannot write {path}: there is no folder {path.parent}",
            remedy="name a file in a folder that exists",
        )


def write_private(path: Path, content: str, *, force: bool) -> None:
    """Write the file, whole or not at all; an existing one is replaced with ``force`` only.

    Raises `ReportFileError`.
    """
    check_target(path, force=force)
    data = content.encode("utf-8", "backslashreplace")
    try:
        if not os.path.lexists(path):
            _write(path, os.O_CREAT | os.O_EXCL, data)
        elif stat.S_ISREG(path.stat().st_mode):
            _replace(path.resolve(), data)
        else:  # a device or a pipe
            _write(path, 0, data)
    except FileExistsError:
        raise ReportFileError(f"{path} exists", remedy="--force overwrites it") from None
    except OSError as error:
        raise ReportFileError(
            f"cannot write {path}: {error.strerror}",
            remedy="name a file in a folder that you may write to",
        ) from None


def _write(path: Path, flags: int, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | flags, _MODE), "wb") as file:  # noqa: PTH123
        try:
            file.write(data)
            file.flush()
        except OSError:
            if flags & os.O_EXCL:
                with contextlib.suppress(OSError):
                    path.unlink()
            raise


def _replace(path: Path, data: bytes) -> None:
    """The new file takes the place of the old in one step; mkstemp makes it private."""
    number, other = tempfile.mkstemp(prefix=f".{path.name[:80]}.", dir=path.parent)
    try:
        with open(number, "wb") as file:  # noqa: PTH123
            file.write(data)
        Path(other).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(other).unlink()
        raise
