"""Keyed pseudonyms that keep every equality, and every difference."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from functools import lru_cache

from kvctl.events import BlockHash

_ROUNDS = 6
_32, _64 = 2**32, 2**64
_CACHED = 1_000_000


class Pseudonyms:
    """Maps tokens, block hashes and names one to one, by a secret key.

    Numbers go through a Feistel network over their own width, which is a bijection whatever its
    round function; names through a keyed digest of 80 bits.
    """

    def __init__(self, key: bytes) -> None:
        self._key = hashlib.blake2b(key, digest_size=32).digest()
        self.token: Callable[[int], int] = lru_cache(_CACHED)(self._token)
        self.name: Callable[[str], str] = lru_cache(_CACHED)(self._name)

    def block_hash(self, value: BlockHash) -> BlockHash:
        """A block hash of the same type, length and sign form.

        An int is the last 8 bytes of the byte form: that stays so for the pseudonyms.
        """
        if isinstance(value, int):
            low = self._feistel("hash", value % _64, 32)
            return low - _64 if value < 0 and low >= _64 // 2 else low
        if len(value) < 8:
            return self.blob(value)
        low = self._feistel("hash", int.from_bytes(value[-8:], "big"), 32)
        return self._digest("head", value, len(value) - 8) + low.to_bytes(8, "big")

    def blob(self, value: bytes) -> bytes:
        """Bytes of the same length."""
        return self._digest("blob", value, len(value))

    def _token(self, value: int) -> int:
        if 0 <= value < _32:
            return self._feistel("token", value, 16)
        # Beyond 32 bits, where no pseudonym of the others lies.
        while (value := self._feistel("wide", value % _64, 32)) < _32:
            pass
        return value

    def _name(self, value: str) -> str:
        return "x" + self._digest("name", value.encode("utf-8", "surrogatepass"), 5).hex()

    def _feistel(self, domain: str, value: int, half: int) -> int:
        mask = (1 << half) - 1
        left, right = value >> half, value & mask
        for number in range(_ROUNDS):
            mixed = self._digest(f"{domain}{number}", struct.pack(">Q", right), half // 8)
            left, right = right, left ^ int.from_bytes(mixed, "big")
        return left << half | right

    def _digest(self, domain: str, value: bytes, size: int) -> bytes:
        out = b""
        count = 0
        while len(out) < size:
            out += hashlib.blake2b(
                value, key=self._key, person=domain.encode(), salt=count.to_bytes(4, "big")
            ).digest()
            count += 1
        return out[:size]
