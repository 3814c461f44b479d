"""Keyed pseudonyms that keep every equality, and every difference."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache

from kvctl.events import BlockHash

_ROUNDS = 6
_TAIL = 8  # the int form of a block hash is the last 8 bytes of its byte form
_SIGN = 2**63
_32, _64 = 2**32, 2**64
_NAME_BYTES = 8
_CACHED = 1_000_000


class Pseudonyms:
    """Maps tokens, block hashes and bytes one to one, and names, by a secret key.

    Numbers and bytes go through a Feistel network over their own width, which is a bijection
    whatever its round function; names through a keyed digest of 64 bits.
    """

    def __init__(self, key: bytes) -> None:
        self._key = hashlib.blake2b(key, digest_size=32).digest()
        self.token: Callable[[int], int] = lru_cache(_CACHED)(self._token)
        self.name: Callable[[str], str] = lru_cache(_CACHED)(self._name)
        self._tail: Callable[[int], int] = lru_cache(_CACHED)(self._permuted_tail)

    def block_hash(self, value: BlockHash) -> BlockHash:
        """A block hash of the same type, length and sign.

        An int is the last 8 bytes of the byte form: that stays so for the pseudonyms.
        """
        if isinstance(value, int):
            tail = self._tail(value % _64)
            return tail - _64 if value < 0 else tail
        if len(value) < _TAIL:
            return self.blob(value)
        front, end = value[:-_TAIL], value[-_TAIL:]
        other = self._tail(int.from_bytes(end, "big")).to_bytes(_TAIL, "big")
        # One to one for each tail. That two hashes had one tail would take 2^32 blocks.
        return _xor(front, self._digest("front", end, len(front))) + other

    def blob(self, value: bytes) -> bytes:
        """Bytes of the same length."""
        return self._permuted("blob", value)

    def _token(self, value: int) -> int:
        if 0 <= value < _32:
            return self._permuted_int("token", value, 4)
        # What is no token id of any model: apart from those that are, and of the same sign.
        other = self._permuted_int("number", value % _64, 8)
        while other < _SIGN if value < 0 else other < _32:
            other = self._permuted_int("number", other, 8)
        return other - _64 if value < 0 else other

    def _permuted_tail(self, value: int) -> int:
        # Up to vLLM 0.10.1 the int is signed: its sign stays, so that it stays a signed 64-bit.
        other = self._permuted_int("hash", value, _TAIL)
        while (other < _SIGN) != (value < _SIGN):
            other = self._permuted_int("hash", other, _TAIL)
        return other

    def _name(self, value: str) -> str:
        if not value:
            return value
        return "x" + self._digest("name", value.encode("utf-8", "surrogatepass"), _NAME_BYTES).hex()

    def _permuted_int(self, domain: str, value: int, size: int) -> int:
        return int.from_bytes(self._permuted(domain, value.to_bytes(size, "big")), "big")

    def _permuted(self, domain: str, value: bytes) -> bytes:
        middle = len(value) // 2
        left, right = value[:middle], value[middle:]
        for number in range(0, _ROUNDS, 2):
            left = _xor(left, self._digest(f"{domain}{number}", right, len(left)))
            right = _xor(right, self._digest(f"{domain}{number + 1}", left, len(right)))
        return left + right

    def _digest(self, domain: str, value: bytes, size: int) -> bytes:
        out = b""
        count = 0
        while len(out) < size:
            out += hashlib.blake2b(
                value, key=self._key, person=domain.encode(), salt=count.to_bytes(4, "big")
            ).digest()
            count += 1
        return out[:size]


def _xor(value: bytes, mask: bytes) -> bytes:
    mixed = int.from_bytes(value, "big") ^ int.from_bytes(mask, "big")
    return mixed.to_bytes(len(value), "big")
