"""What one round of reconcile leaves to the next, where the index has no room for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

import platformdirs
from xxhash import xxh3_64_hexdigest

from kvctl.errors import KvctlError


class Memory(Protocol):
    """Texts under names."""

    def recall(self, name: str) -> str | None:
        """What was remembered under that name."""
        ...

    def remember(self, name: str, value: str) -> None:
        """Keep a text under a name."""
        ...


class PassingMemory:
    """Another memory as it was, and what is remembered from now on, which goes with the process."""

    def __init__(self, before: Memory) -> None:
        self.before = before
        self._since: dict[str, str] = {}

    def recall(self, name: str) -> str | None:
        """What was remembered under that name."""
        return self._since[name] if name in self._since else self.before.recall(name)

    def remember(self, name: str, value: str) -> None:
        """Keep a text under a name, for this process."""
        self._since[name] = value


class FileMemory:
    """A file per name in the user's state directory, for one index by its URL."""

    def __init__(self, url: str, folder: Path | None = None) -> None:
        self._folder = folder or Path(platformdirs.user_state_dir("kvctl")) / "memory"
        self._about = xxh3_64_hexdigest(url.encode(errors="surrogateescape"))

    def recall(self, name: str) -> str | None:
        """What was remembered under that name."""
        try:
            return self._path(name).read_text(encoding="utf-8")
        except (FileNotFoundError, UnicodeDecodeError):
            return None
        except OSError as error:
            raise _cannot(self._path(name), error) from None

    def remember(self, name: str, value: str) -> None:
        """Keep a text under a name; the old one stays until the new one is whole."""
        path = self._path(name)
        fresh = path.with_suffix(f".{os.getpid()}.new")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh.write_text(value, encoding="utf-8")
            fresh.replace(path)
        except OSError as error:
            raise _cannot(path, error) from None

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}-{self._about}.json"


def _cannot(path: Path, error: OSError) -> KvctlError:
    return KvctlError(
        f"{path} cannot be used: {error.strerror}",
        remedy="it keeps what reconcile saw last; set XDG_STATE_HOME to where it may be written",
    )
