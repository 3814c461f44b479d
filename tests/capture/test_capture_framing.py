"""Resynchronising: records are found again behind damage, and good ones are not given up."""

from __future__ import annotations

import io
import random

import pytest
from recordings import wire_batches

from kvctl.capture import CaptureError, CaptureHeader
from kvctl.capture.format import new_header, pack_header, pack_record
from kvctl.capture.framing import Frames
from kvctl.events import MAX_PAYLOAD, Gap, Note, Restart, WireBatch

HEADER = new_header({"pod-a": {}})


class Reading:
    """What a run of `Frames` over some bytes gave."""

    def __init__(self, data: bytes, chunk: int = 2**20) -> None:
        file = io.BytesIO(data)
        self.warnings: list[str] = []
        frames = Frames(lambda count: file.read(min(count, chunk)), self.warnings.append)
        self.parts = list(frames)
        self.cut = frames.cut
        self.position = frames.position

    @property
    def records(self) -> list:
        return [part for part in self.parts if not isinstance(part, CaptureHeader)]


def junk(number: int, payload: bytes) -> WireBatch:
    return WireBatch(1_796_000_000_000_000_000 + number, "pod-a", 0, b"kv", number, payload)


def mixed(name: str) -> list:
    """Batches of a recording with every kind of mark between them."""
    batches = wire_batches(name)
    return [
        *batches[:3],
        Gap(10**18, "pod-a", 0, 4, 5, False, "lost on the way"),
        *batches[3:5],
        Note(10**18, "pod-a", None, "connection lost"),
        Restart(10**18, "pod-a", 0, 5, "seq went back"),
        *batches[:2],
    ]


@pytest.mark.parametrize("name", ["warm", "fleet", "hybrid", "lora", "restart"])
def test_a_flipped_bit_costs_its_record_and_at_most_the_next(name: str) -> None:
    records = mixed(name)
    packed = [pack_header(HEADER), *map(pack_record, records)]
    data = b"".join(packed)
    chance = random.Random(5)
    start = len(packed[0])
    for number, each in enumerate(packed[1:]):
        bits = [(at, bit) for at in range(len(each)) for bit in range(8)]
        for at, bit in bits if len(bits) < 400 else chance.sample(bits, 400):
            damaged = bytearray(data)
            damaged[start + at] ^= 1 << bit
            found = Reading(bytes(damaged)).records
            assert found[:number] == records[:number], (number, at, bit)
            rest = records[number + 2 :]
            assert found[len(found) - len(rest) :] == rest, (number, at, bit)
        start += len(each)


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
def test_the_size_of_reads_makes_no_difference(chunk: int) -> None:
    records = mixed("warm")
    packed = [pack_header(HEADER), *map(pack_record, records)]
    packed[3] = packed[3][:20] + b"\xc1" + packed[3][21:40]
    data = b"".join(packed) + b"\x96\xcf\x00"
    whole, pieces = Reading(data), Reading(data, chunk)
    assert pieces.parts == whole.parts
    assert pieces.warnings == whole.warnings
    assert (pieces.cut, pieces.position) == (whole.cut, whole.position) == (3, len(data) - 3)


@pytest.mark.parametrize("payload", [b"junk", b"\x93", wire_batches("warm")[0].payload])
@pytest.mark.parametrize("behind", [b"\xc1", b"\x00" * 40, b"\x96\xcf garbage with a good start"])
def test_the_good_record_right_in_front_of_damage_is_kept(payload: bytes, behind: bytes) -> None:
    before, good, after = junk(1, b""), junk(2, payload), junk(3, b"")
    data = b"".join(map(pack_record, (before, good))) + behind + pack_record(after)
    reading = Reading(data)
    assert reading.records == [before, good, after]
    (warning,) = reading.warnings
    assert f"{len(behind)} bytes skipped" in warning


def test_a_good_record_between_two_damages_is_kept() -> None:
    records = [junk(number, b"p" * number) for number in range(5)]
    data = (b"\xc1" * 3).join(map(pack_record, records))
    reading = Reading(data + b"\xc1")
    assert reading.records == records
    assert len(reading.warnings) == 5


def test_a_good_record_that_holds_a_single_one_is_kept() -> None:
    """One record in a payload is no sign that it was swallowed: nothing leads on from it."""
    good = junk(1, pack_record(junk(9, b"")) + b"and more")
    reading = Reading(pack_record(good) + b"\xc1\xc1" + pack_record(junk(2, b"")))
    assert reading.records == [good, junk(2, b"")]


def test_a_batch_that_decodes_is_kept_though_its_tokens_look_like_records() -> None:
    """Whoever publishes may not make a reader near damage see batches of other pods."""
    import msgpack

    planted = pack_record(junk(9, b"")) * 2
    salt = planted.decode("latin-1")
    event = {"type": "BlockStored", "block_hashes": [planted], "parent_block_hash": None,
             "token_ids": [1], "block_size": 1, "cache_salt": salt}  # fmt: skip
    batch = junk(1, msgpack.packb([1.0, [event], 0]))
    reading = Reading(pack_record(batch) + b"\xc1\xc1" + pack_record(junk(2, b"")))
    assert reading.records == [batch, junk(2, b"")]


@pytest.mark.parametrize("end", [b"", b"\xc1" * 5, pack_record(junk(9, b"x"))[:-4]])
def test_a_record_made_longer_gives_back_what_it_swallowed(end: bytes) -> None:
    records = [junk(number, b"p" * 50) for number in range(6)]
    packed = [bytearray(pack_record(record)) for record in records]
    packed[1][packed[1].index(b"\xc4\x32") + 1] = 190  # two more records and a bit
    reading = Reading(b"".join(packed) + end)
    assert reading.records == [records[0], *records[2:]]
    assert "skipped" in reading.warnings[0]


def test_a_record_made_longer_than_the_file_gives_back_what_it_swallowed() -> None:
    records = [junk(number, b"p" * 300) for number in range(4)]
    packed = [bytearray(pack_record(record)) for record in records]
    packed[1][packed[1].index(b"\xc5\x01\x2c") + 1] = 0xFF
    reading = Reading(b"".join(packed))
    assert reading.records == [records[0], *records[2:]]
    assert (reading.cut, len(reading.warnings)) == (0, 1)


def test_a_header_behind_damage_is_found_again() -> None:
    data = pack_record(junk(1, b"")) + b"\xc1" * 9 + pack_header(HEADER) + pack_record(junk(2, b""))
    reading = Reading(data)
    assert reading.parts == [junk(1, b""), HEADER, junk(2, b"")]
    assert reading.warnings == [f"damage at byte {len(pack_record(junk(1, b'')))}: 9 bytes skipped"]


def test_a_newer_version_further_on_is_told_behind_what_came_before() -> None:
    newer = pack_header(CaptureHeader(1.0, "9.1.0", 2))
    file = io.BytesIO(pack_record(junk(1, b"")) + newer + b"\xc0" * 50)
    frames = iter(Frames(file.read, lambda _: None))
    assert next(frames) == junk(1, b"")
    with pytest.raises(CaptureError, match=r"version 2, written by kvctl 9\.1\.0") as caught:
        next(frames)
    assert "install kvctl 9.1.0 or newer" in str(caught.value)


def test_the_largest_payload_fits_and_a_larger_one_is_damage() -> None:
    large = junk(1, bytes(MAX_PAYLOAD))
    reading = Reading(b"".join(map(pack_record, (junk(0, b""), large, junk(2, b"")))))
    assert reading.records == [junk(0, b""), large, junk(2, b"")]
    too_large = pack_record(junk(1, bytes(MAX_PAYLOAD + 1)))
    reading = Reading(pack_record(junk(0, b"")) + too_large + pack_record(junk(2, b"")))
    assert reading.records == [junk(0, b""), junk(2, b"")]
    assert f"{len(too_large)} bytes skipped" in reading.warnings[0]


def test_damage_longer_than_any_record_is_passed_in_bounded_memory() -> None:
    """100 MiB of zeros, as a file has where its disk lost a stretch."""
    import tracemalloc

    front, back = pack_record(junk(1, b"")), pack_record(junk(2, b""))
    pieces = iter([front, *[bytes(2**20)] * 100, back])
    warnings: list[str] = []
    tracemalloc.start()
    try:
        found = list(Frames(lambda _: next(pieces, b""), warnings.append))
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == [junk(1, b""), junk(2, b"")]
    assert f"{100 * 2**20} bytes skipped" in warnings[0]
    assert peak < 16 * 2**20


def test_a_long_capture_is_read_in_bounded_memory() -> None:
    import tracemalloc

    record = junk(1, bytes(2**16))
    packed = pack_record(record)
    pieces = (packed for _ in range(1000))
    tracemalloc.start()
    try:
        count = sum(1 for _ in Frames(lambda _: next(pieces, b""), lambda _: None))
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 1000
    assert peak < 16 * 2**20


def test_an_array_without_end_is_given_up_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    import tracemalloc

    monkeypatch.setattr("kvctl.capture.framing.MAX_RECORD", 2**20)
    front = pack_record(junk(1, b"")).replace(b"\xc4\x00", b"\xdc\xff\xff")
    strings = (b"\xda\x3f\xfd" + bytes(0x3FFD)) * 64
    pieces = iter([front, *[strings] * 128, pack_record(junk(2, b""))])
    tracemalloc.start()
    try:
        found = list(Frames(lambda _: next(pieces, b""), lambda _: None))
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == [junk(2, b"")]
    assert peak < 32 * 2**20


def test_a_claim_of_four_gigabytes_costs_only_its_record() -> None:
    record = pack_record(junk(1, b"p")).replace(b"\xc4\x01p", b"\xc6\xff\xff\xff\xff")
    reading = Reading(record + pack_record(junk(2, b"")) * 3)
    assert reading.records == [junk(2, b"")] * 3
