"""The completion scripts of the shells, and where a user's shells look for them."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path
from typing import Literal, TypeAlias

from kvctl.errors import KvctlError

Shell: TypeAlias = Literal["bash", "zsh", "fish"]

_ZSH_LINES = "fpath+=({folder})\nautoload -Uz compinit && compinit\n"


class InstallError(KvctlError):
    """A file of the user's cannot be written."""


def script(shell: Shell) -> str:
    """The script that makes ``shell`` ask kvctl for completions."""
    return (resources.files("kvctl.cli") / "scripts" / shell).read_text(encoding="utf-8")


def install_script(shell: Shell) -> tuple[Path, ...]:
    """Put the script where the user's shell finds it; returns the files that were changed.

    A start-up file of the shell's is added to where that is needed, and not twice. Raises
    `InstallError`.
    """
    home = Path.home()
    if shell == "fish":
        folder = _folder("XDG_CONFIG_HOME", home / ".config") / "fish" / "completions"
        path, start, lines = folder / "kvctl.fish", None, ""
    elif shell == "zsh":
        folder = _folder("XDG_DATA_HOME", home / ".local/share") / "kvctl" / "zsh"
        path, start = folder / "_kvctl", _folder("ZDOTDIR", home) / ".zshrc"
        lines = _ZSH_LINES.format(folder=_word(str(folder)))
    else:
        folder = _folder("XDG_DATA_HOME", home / ".local/share") / "bash-completion/completions"
        path, start = folder / "kvctl", home / ".bashrc"
        lines = f"source {_word(str(path))}\n"
    changed = [path]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script(shell), encoding="utf-8")
        if start is not None and _add(start, lines):
            changed.append(start)
    except OSError as error:
        raise InstallError(
            f"{error.filename or path} cannot be written: {error.strerror}",
            remedy=f"kvctl completion {shell} prints the script",
        ) from None
    return tuple(changed)


def _add(path: Path, lines: str) -> bool:
    """Put the lines at the end of a start-up file, unless they are in it."""
    text = path.read_text(encoding="utf-8", errors="surrogateescape") if path.exists() else ""
    if lines in text:
        return False
    gap = "" if not text or text.endswith("\n") else "\n"
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{gap}\n# kvctl completion\n{lines}")
    return True


def _folder(variable: str, default: Path) -> Path:
    return Path(os.environ.get(variable) or default)


def _word(text: str) -> str:
    import shlex

    return shlex.quote(text)
