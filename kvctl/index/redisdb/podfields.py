"""The fields of llm-d's hashes in Redis: which pod holds a block, and where.

A field is the JSON of a pod entry, as Go writes it; before 2026 it was `<pod>@<tier>`. What has
neither form is not llm-d's.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import msgspec

KEY = re.compile(rb"(?:0|[1-9][0-9]{0,19})\Z")
"""A request key: a decimal uint64. Nothing else in the database is a block."""

ENGINE_KEY = re.compile(rb"engine:(?:0|[1-9][0-9]{0,19})\Z")

_OLD_FIELD = re.compile(r"(?P<pod>.+?)@(?P<tier>[a-z_]+)(?P<speculative>\[speculative\])?\Z")


class _Field(msgspec.Struct):
    PodIdentifier: str
    DeviceTier: str
    Speculative: bool = False
    HasGroup: bool = False
    GroupIdx: int = 0


_decode = msgspec.json.Decoder(_Field).decode


@dataclass(frozen=True)
class PodField:
    """One pod's claim to a block. ``tier`` is in lower case; ``group`` None for a pod without."""

    pod: str
    tier: str
    speculative: bool = False
    group: int | None = None

    def encode(self) -> bytes:
        """The field as llm-d writes it, byte for byte: it is removed by its bytes."""
        text = json.dumps(
            {
                "PodIdentifier": self.pod,
                "DeviceTier": self.tier,
                "Speculative": self.speculative,
                "HasGroup": self.group is not None,
                "GroupIdx": self.group or 0,
            },
            ensure_ascii=False,
            separators=(",", ":"),
        )
        # Go's encoder keeps JSON safe inside HTML and JavaScript.
        for character in "<>&\u2028\u2029":
            text = text.replace(character, f"\\u{ord(character):04x}")
        return text.encode(errors="replace")


def parse_field(field: bytes, value: bytes) -> PodField | None:
    """The claim in a field, None where field or value have not the form of llm-d's."""
    if value:
        return None
    if field[:1] == b"{":
        try:
            told = _decode(field)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        group = told.GroupIdx if told.HasGroup else None
        return PodField(told.PodIdentifier, told.DeviceTier, told.Speculative, group)
    try:
        old = _OLD_FIELD.match(field.decode())
    except UnicodeDecodeError:
        return None
    if old is None:
        return None
    return PodField(old["pod"], old["tier"], old["speculative"] is not None)
