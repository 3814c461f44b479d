"""Which events a filter lets through."""

from __future__ import annotations

from typing import Any

import pytest

from kvctl.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    Event,
    EventFilter,
    UnknownEvent,
)

STORE = BlockStored([1234, b"\xab" * 16], 77, [1, 2], 1, lora_name="ad1", medium="CPU")
BASE = BlockStored([9], None, [1], 1)
REMOVE = BlockRemoved([55])
EVENTS: dict[str, Event] = {
    "s": STORE,
    "b": BASE,
    "r": REMOVE,
    "u": UnknownEvent("Moved", {}),
    "c": AllBlocksCleared(),
}


@pytest.mark.parametrize(
    ("conditions", "wanted"),
    [
        ({}, "sbruc"),
        ({"types": frozenset({"BlockRemoved"})}, "r"),
        ({"types": frozenset({"Moved", "AllBlocksCleared"})}, "uc"),
        ({"loras": frozenset({"ad1"})}, "s"),
        ({"loras": frozenset({""})}, "b"),
        ({"media": frozenset({"GPU"})}, "br"),
        ({"media": frozenset({"CPU"})}, "s"),
        ({"hashes": ("123",)}, "s"),
        ({"hashes": ("234",)}, ""),
        ({"hashes": ("abab",)}, "s"),
        ({"hashes": ("77",)}, "s"),
        ({"hashes": ("9", "5")}, "br"),
        ({"hashes": ("5",), "media": frozenset({"CPU"})}, ""),
        ({"hashes": ("5",), "media": frozenset({"GPU"})}, "r"),
    ],
)
def test_every_condition_of_a_filter_must_hold(conditions: dict[str, Any], wanted: str) -> None:
    chosen = EventFilter(**conditions)
    assert bool(chosen) == bool(conditions)
    assert "".join(name for name, event in EVENTS.items() if chosen.wants(event)) == wanted
