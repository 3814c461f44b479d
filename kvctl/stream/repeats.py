"""Notes that come again and again, told a few times only."""

from __future__ import annotations

_KINDS = 100
_OTHER = "further kinds of malformed messages"


class Repeats:
    """Counts texts: each is told when it is the first, then at 10, 100, 1000, …

    A hostile publisher could make every text a new one: beyond a hundred, they count as one.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def tell(self, text: str) -> str | None:
        """The text to tell now, with its count where it is not the first; None for silence."""
        if text not in self._counts and len(self._counts) >= _KINDS:
            text = _OTHER
        count = self._counts[text] = self._counts.get(text, 0) + 1
        if count == 1:
            return text
        if count == 10 ** (len(str(count)) - 1):
            return f"{text} ({count} times by now)"
        return None
