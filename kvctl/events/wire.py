"""The forms of an event on the wire, by vLLM version: array or map, with which fields in order.

Source: vLLM ``distributed/kv_events.py`` of the versions named. Used to read array events of any
length, and to write events as a chosen version would (simulator, tests, redaction).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvctl.errors import UsageError

STORED_FIELDS = (
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
    "locality",
    "ownership",
    "session_id",
    "lookahead_token_ids",
)
"""`BlockStored` after its tag, in wire order; every version sends a prefix of these."""

REMOVED_FIELDS = ("block_hashes", "medium", "group_idx", "locality", "ownership")
"""`BlockRemoved` after its tag, in wire order."""

FIELDS = {
    "BlockStored": STORED_FIELDS,
    "BlockRemoved": REMOVED_FIELDS,
    "AllBlocksCleared": (),
}

# Map events leave a field out when it has its default; these have none and are always sent.
ALWAYS_SENT = frozenset(STORED_FIELDS[:7])


@dataclass(frozen=True)
class WireForm:
    """How one range of vLLM versions writes a batch.

    ``since`` is the first version of the range. ``rank`` says whether a batch has its third
    element (`data_parallel_rank`). ``replay_topic`` says whether a replay answer carries the
    topic as a frame of its own (four frames instead of three).
    """

    since: tuple[int, int, int]
    stored: tuple[str, ...]
    removed: tuple[str, ...]
    maps: bool = False
    rank: bool = True
    replay_topic: bool = False

    def fields(self, tag: str) -> tuple[str, ...]:
        """Field names this form sends for an event type, in order, without the tag."""
        return {"BlockStored": self.stored, "BlockRemoved": self.removed}.get(tag, ())

    @property
    def name(self) -> str:
        """The version that introduced this form, as `0.24.0`."""
        return ".".join(map(str, self.since))


def _form(since: str, stored: int, removed: int, **flags: bool) -> WireForm:
    major, minor, patch = map(int, since.split("."))
    return WireForm(
        (major, minor, patch), STORED_FIELDS[:stored], REMOVED_FIELDS[:removed], **flags
    )


FORMS = (
    _form("0.9.0", 5, 1, rank=False),
    _form("0.9.1", 5, 1),
    _form("0.10.2", 6, 2),
    _form("0.14.0", 7, 2),
    _form("0.17.0", 8, 2),
    _form("0.20.0", 9, 3),
    _form("0.22.0", 11, 3),
    _form("0.24.0", 11, 3, maps=True),
    _form("0.26.0", 12, 4, maps=True, replay_topic=True),
    _form("0.29.0", 13, 5, maps=True, replay_topic=True),
    _form("0.30.0", 14, 5, maps=True, replay_topic=True),
    _form("0.33.0", 15, 5, maps=True, replay_topic=True),
)
"""Every form known, oldest first."""


def wire_form(version: str) -> WireForm:
    """The form that vLLM ``version`` (`0.18`, `0.10.2`) writes.

    Raises `UsageError` for text that is no version and for one older than any form.
    """
    match = re.fullmatch(r"v?([0-9]{1,6})\.([0-9]{1,6})(?:\.([0-9]{1,6}))?", version.strip())
    if match is None:
        raise UsageError(
            f"{version!r} is not a vLLM version", remedy="give one like 0.18 or 0.32.0"
        )
    wanted = (int(match[1]), int(match[2]), int(match[3] or 0))
    for form in reversed(FORMS):
        if form.since <= wanted:
            return form
    raise UsageError(
        f"vLLM {version} published no KV events", remedy=f"the first form is {FORMS[0].name}"
    )
