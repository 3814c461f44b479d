"""Frames, versions, records, filters: the rest of the wire."""

from __future__ import annotations

import msgpack
import pytest
from event_forms import VERSIONS
from recordings import frames, lines

from kvctl.errors import UsageError
from kvctl.events import (
    AllBlocksCleared,
    Batch,
    BlockRemoved,
    BlockStored,
    DecodeError,
    EventBatch,
    EventFilter,
    Gap,
    Note,
    Restart,
    Tally,
    Undecodable,
    UnknownEvent,
    WireBatch,
    decode_record,
    encode_batch,
    encode_seq,
    hash_text,
    parse_message,
    parse_replay,
    stream_of,
    wire_form,
)


@pytest.mark.parametrize("version", sorted(VERSIONS))
def test_the_form_of_a_version_is_the_contracts(version: str) -> None:
    is_map, stored, removed, elements = VERSIONS[version]
    form = wire_form(version)
    assert (form.maps, list(form.stored), list(form.removed)) == (is_map, stored, removed)
    assert form.rank == (elements == 3)
    assert form.replay_topic == (tuple(map(int, version.split("."))) >= (0, 26))


@pytest.mark.parametrize("text", ["", "new", "0", "1.2.3.4", "0.-1", "0.8", "v0.8.5"])
def test_a_version_without_events_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="vLLM"):
        wire_form(text)


def test_later_versions_write_the_newest_form() -> None:
    assert wire_form("v1.0") == wire_form("0.33.0")


def test_a_message_is_three_frames() -> None:
    assert parse_message([b"t", encode_seq(7), b"p"]) == (b"t", 7, b"p")
    for bad in ([], [b"p"], [b"t", b"p"], [b"", b"t", encode_seq(1), b"p"]):
        with pytest.raises(DecodeError, match=f"{len(bad)} frames, expected 3"):
            parse_message(bad)


@pytest.mark.parametrize("seq", [b"", b"1234567", b"123456789", b"\xff" * 8, b"\x80" + bytes(7)])
def test_a_bad_seq_frame_is_refused(seq: bytes) -> None:
    with pytest.raises(DecodeError, match="seq"):
        parse_message([b"t", seq, b"p"])


def test_recorded_replay_answers_of_both_framings_are_read() -> None:
    for name, count in (("synthetic-replay-3frames", 3), ("replay-router-from0", 4)):
        answers = [frames(line) for line in lines(name)]
        assert {len(answer) for answer in answers} == {count}
        parsed = [parse_replay(answer) for answer in answers]
        assert parsed[-1] is None
        seqs = [each[1] for each in parsed[:-1] if each is not None]
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
    for bad in ([b"p"], [b"", b"p"], [b""] * 5):
        with pytest.raises(DecodeError, match="frames, expected 3 or 4"):
            parse_replay(bad)


def test_a_record_is_the_batch_or_the_reason_why_not() -> None:
    payload = msgpack.packb([1.0, [["AllBlocksCleared"]], 5])
    wire = WireBatch(1, "pod-a", 0, b"", 9, payload)
    assert decode_record(wire).wire.rank == 0
    named = decode_record(wire, rank_from_payload=True)
    assert isinstance(named, Batch)
    assert (named.wire.rank, named.wire.payload) == (5, payload)
    broken = decode_record(WireBatch(1, "pod-a", 2, b"", 9, b""), rank_from_payload=True)
    assert isinstance(broken, Undecodable)
    assert stream_of(broken) == ("pod-a", 2)
    assert stream_of(Note(0, "pod-b", None, "x")) == ("pod-b", None)


def test_a_gap_counts_both_its_ends() -> None:
    assert Gap(0, "pod-a", 0, 3, 5, False).missing == 3


def test_hashes_are_printed_in_decimal_or_hex() -> None:
    assert hash_text(2**64 - 1) == "18446744073709551615"
    assert hash_text(-5) == "-5"
    assert hash_text(b"\xab\x00") == "ab00"


def test_an_unknown_event_is_encoded_as_it_was() -> None:
    event = UnknownEvent("Moved", {"to": "CPU"})
    for version in ("0.18", "0.32"):
        batch = msgpack.unpackb(encode_batch(EventBatch(1.0, [event], 0), wire_form(version)))
        assert batch[1] == (
            [["Moved", "CPU"]] if version == "0.18" else [{"type": "Moved", "to": "CPU"}]
        )


STORE = BlockStored([1234, b"\xab" * 16], 77, [1, 2], 1, lora_name="ad1", medium="CPU")
REMOVE = BlockRemoved([55])


@pytest.mark.parametrize(
    ("conditions", "wanted"),
    [
        ({}, "sruc"),
        ({"types": frozenset({"BlockRemoved"})}, "r"),
        ({"types": frozenset({"Moved"})}, "u"),
        ({"loras": frozenset({"ad1"})}, "s"),
        ({"loras": frozenset({""})}, ""),
        ({"media": frozenset({"GPU"})}, "r"),
        ({"media": frozenset({"CPU"})}, "s"),
        ({"hashes": ("123",)}, "s"),
        ({"hashes": ("abab",)}, "s"),
        ({"hashes": ("77",)}, "s"),
        ({"hashes": ("9", "5")}, "r"),
        ({"hashes": ("5",), "media": frozenset({"CPU"})}, ""),
    ],
)
def test_every_condition_of_a_filter_must_hold(conditions: dict, wanted: str) -> None:
    chosen = EventFilter(**conditions)
    assert bool(chosen) == bool(conditions)
    events = {"s": STORE, "r": REMOVE, "u": UnknownEvent("Moved", {}), "c": AllBlocksCleared()}
    assert "".join(name for name, event in events.items() if chosen.wants(event)) == wanted


def test_a_tally_counts_what_passed() -> None:
    tally = Tally()
    wire = WireBatch(0, "pod-a", 0, b"", 0, b"")
    events = [STORE, REMOVE, REMOVE, AllBlocksCleared(), UnknownEvent("Moved", {})]
    for record in (
        Batch(wire, EventBatch(1.0, events)),
        Undecodable(wire, "junk"),
        Gap(0, "pod-a", 0, 1, 4, False),
        Gap(0, "pod-a", 0, 5, 5, True),
        Restart(0, "pod-a", 0, 5, "x"),
        Note(0, "pod-a", None, "x"),
    ):
        tally.add(record)
    assert tally.events == {
        "BlockStored": 1,
        "BlockRemoved": 2,
        "AllBlocksCleared": 1,
        "unknown": 1,
    }
    assert (tally.batches, tally.blocks_stored, tally.blocks_removed) == (2, 2, 2)
    assert (tally.undecodable, tally.missing, len(tally.gaps), len(tally.restarts)) == (1, 4, 2, 1)
