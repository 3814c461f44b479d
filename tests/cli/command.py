"""How tests call the command: its words, and a user's environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

COMMAND = [sys.executable, "-m", "kvctl"]


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    """A user's environment with nothing of this machine's configuration in it."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("KVCTL_", "COLUMNS"))}
    return kept | {"KVCTL_CONFIG": str(tmp_path / "config.toml"), "PYTHONWARNINGS": "error"} | more
