"""How refused words are shown: quoted on one line, with the nearest right one."""

from __future__ import annotations

import difflib
from collections.abc import Collection

_LONGEST = 80
_MOST = 20


def quoted(text: str) -> str:
    """The text in quotes, control characters escaped, cut where it is very long."""
    return repr(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…")


def nearest(word: str, choices: Collection[str]) -> str:
    """A remedy: the choice that was probably meant, or else what there is."""
    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]}?"
    shown = sorted(choices)[:_MOST]
    more = f" and {len(choices) - _MOST} more" if len(choices) > _MOST else ""
    return f"known: {', '.join(shown)}{more}"
