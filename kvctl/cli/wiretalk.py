"""What --verbose tells: the log of kvctl's layers, a plain line each on stderr."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

from kvctl.text import printable


def tell_of_the_wire() -> None:
    """Show what the layers log from now on. A second call changes nothing."""
    logger = logging.getLogger("kvctl")
    if any(isinstance(each, _Lines) for each in logger.handlers):
        return
    # Captured now: a live table takes over sys.stderr while it is shown.
    logger.addHandler(_Lines(sys.stderr))
    logger.setLevel(logging.DEBUG)
    logger.propagate = False


class _Lines(logging.StreamHandler[TextIO]):
    """Writes each record as one escaped line."""

    def format(self, record: logging.LogRecord) -> str:
        return f"> {printable(record.getMessage())}"
