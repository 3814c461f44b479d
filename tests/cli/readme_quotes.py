"""Quotes of `kvctl explain` in the README: `python tests/cli/readme_quotes.py` updates them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
_COLUMNS = "100"
_QUOTE = re.compile(r"^\$ kvctl explain (.+)\n((?:(?!```).*\n)*)```", re.M)


def quoted(readme: str) -> list[str]:
    """What the README has explained, as typed."""
    return [words for words, _text in _QUOTE.findall(readme)]


def requoted(readme: str) -> str:
    """The README with each quote as the command prints it now."""
    return _QUOTE.sub(lambda found: f"$ kvctl explain {found[1]}\n{_told(found[1])}```", readme)


def _told(words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "kvctl", "explain", *words.split()],
        capture_output=True,
        check=True,
        env=os.environ | {"COLUMNS": _COLUMNS},
    )
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.decode().splitlines())


if __name__ == "__main__":
    README.write_text(requoted(README.read_text()))
