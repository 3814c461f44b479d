"""The stretch of a stream that is kept in memory while it is looked at."""

from __future__ import annotations

import re
from collections.abc import Callable

_CHUNK = 1024 * 1024


class Window:
    """Loads what is asked for off ``read`` (n -> bytes, empty at the end).

    Places are counted in bytes from the stream's beginning. What lies before the place last
    given to `forget` may be gone.
    """

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._data = bytearray()
        self._begin = 0
        self._ended = False

    @property
    def end(self) -> int:
        """How far the stream is loaded."""
        return self._begin + len(self._data)

    def reaches(self, place: int) -> bool:
        """Whether the stream has a byte there; loads up to it."""
        while self.end <= place and self._load():
            pass
        return self.end > place

    def some(self, place: int, most: int) -> bytes:
        """The next bytes from there, at most so many; empty at the end of the stream."""
        self.reaches(place)
        at = place - self._begin
        return bytes(self._data[at : at + most])

    def all(self, place: int, count: int) -> bytes:
        """So many bytes from there, fewer only at the end of the stream."""
        self.reaches(place + count - 1)
        return self.some(place, count)

    def matches(self, pattern: re.Pattern[bytes], width: int, place: int) -> bool | None:
        """Whether ``pattern`` matches there; None where the stream ends within ``width`` bytes."""
        at = place - self._begin
        if at + width > len(self._data) and not self.reaches(place + width - 1):
            return None
        return pattern.match(self._data, at) is not None

    def search(
        self, pattern: re.Pattern[bytes], width: int, start: int, stop: int | None = None
    ) -> int | None:
        """Where ``pattern``, of at most ``width`` bytes, next matches; None before ``stop``.

        Without a ``stop`` it is looked for to the end of the stream, and what it passes is
        forgotten.
        """
        while self.reaches(start) and (stop is None or start < stop):
            if stop is None:
                self.forget(start)
            match = pattern.search(self._data, start - self._begin)
            if match is not None:
                place = self._begin + match.start()
                return place if stop is None or place < stop else None
            start = max(start, self.end - width + 1)
            if not self._load():
                return None
        return None

    def forget(self, place: int) -> None:
        """Nothing before that place will be asked for again."""
        if place - self._begin >= _CHUNK:
            del self._data[: place - self._begin]
            self._begin = place

    def _load(self) -> bool:
        if self._ended:
            return False
        piece = self._read(_CHUNK)
        self._ended = not piece
        self._data += piece
        return not self._ended
