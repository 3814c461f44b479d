"""Captures that were cut, damaged or never were any: what came before is never lost."""

from __future__ import annotations

import contextlib
import random
import re
from pathlib import Path

import hypothesis.strategies as st
import msgpack
import pytest
from hypothesis import given
from recordings import wire_batches

from kvctl.capture import CaptureError, CaptureWriter, open_capture
from kvctl.capture.format import new_header, pack_header, pack_record
from kvctl.events import Gap, Note, Restart, WireBatch

HEADER = pack_header(new_header())


def small(number: int, size: int = 5) -> WireBatch:
    """A batch whose payload is no msgpack worth decoding: a capture keeps what came."""
    payload = bytes((number + at) % 256 for at in range(size))
    return WireBatch(1_796_000_000_000_000_000 + number, "pod-a", 0, b"kv", number, payload)


def read(path: Path) -> tuple[list, list[str]]:
    with open_capture(path) as reader:
        records = list(reader)
        return records, reader.warnings


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_a_file_cut_at_any_byte_of_its_last_records_is_read_up_to_the_cut(tmp_path: Path) -> None:
    records = [*wire_batches("warm"), Gap(10**18, "pod-a", 0, 4, 5, False, "x"), small(6)]
    packed = [pack_record(record) for record in records]
    data = HEADER + b"".join(packed)
    ends = [len(HEADER)]
    for each in packed:
        ends.append(ends[-1] + len(each))
    for cut in range(ends[-4], len(data)):
        found, warnings = read(written(tmp_path / "cut.kvcap", data[:cut]))
        whole = sum(end <= cut for end in ends) - 1
        assert found == records[:whole]
        left = cut - ends[whole]
        if left:
            assert len(warnings) == 1
            assert f"{left} bytes left" in warnings[0]
        else:
            assert warnings == []


def test_no_flipped_bit_of_a_record_loses_another(tmp_path: Path) -> None:
    """Every bit of the middle one of seven records."""
    records = [small(number) for number in range(7)]
    packed = [pack_record(record) for record in records]
    start = len(HEADER) + sum(map(len, packed[:3]))
    data = HEADER + b"".join(packed)
    for at in range(start, start + len(packed[3])):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            found, _warnings = read(written(tmp_path / "flip.kvcap", bytes(damaged)))
            assert found[:3] == records[:3], (at - start, bit)
            assert found[-3:] == records[4:], (at - start, bit)


@given(data=st.data())
def test_a_flipped_bit_anywhere_spares_what_stands_before(tmp_path_factory, data) -> None:
    records = wire_batches("fleet")[:12]
    packed = [pack_record(record) for record in records]
    whole = HEADER + b"".join(packed)
    at = data.draw(st.integers(len(HEADER), len(whole) - 1))
    damaged = bytearray(whole)
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    folder = tmp_path_factory.mktemp("flip")
    found, _warnings = read(written(folder / "flip.kvcap", bytes(damaged)))
    end, before = len(HEADER), 0
    while end + len(packed[before]) <= at:
        end += len(packed[before])
        before += 1
    assert found[:before] == records[:before]
    # And what stands behind the record behind it is found again.
    behind = len(records) - before - 2
    if behind > 0:
        assert found[-behind:] == records[-behind:]


@pytest.mark.parametrize("size", [1, 17, 4096, 3_000_000])
def test_garbage_between_records_is_skipped_with_a_warning(tmp_path: Path, size: int) -> None:
    records = [small(number) for number in range(6)]
    packed = [pack_record(record) for record in records]
    garbage = random.Random(7).randbytes(size)
    data = HEADER + b"".join(packed[:3]) + garbage + b"".join(packed[3:])
    found, warnings = read(written(tmp_path / "garbage.kvcap", data))
    assert found == records
    assert len(warnings) == 1
    assert f"{size} bytes skipped" in warnings[0]


def test_a_record_that_swallows_the_next_by_its_length_is_given_up(tmp_path: Path) -> None:
    records = [small(number, size=40) for number in range(6)]
    packed = [bytearray(pack_record(record)) for record in records]
    length = packed[2].index(b"\xc4\x28") + 1
    packed[2][length] += 60  # past the next record's head
    found, warnings = read(written(tmp_path / "swallow.kvcap", HEADER + b"".join(packed)))
    assert found == records[:2] + records[3:]
    assert "skipped" in warnings[0]


def test_a_length_beyond_the_file_does_not_hide_what_follows(tmp_path: Path) -> None:
    records = [small(number) for number in range(6)]
    packed = [pack_record(record) for record in records]
    packed[2] = packed[2].replace(b"\xc4\x05", b"\xc6\x7f\xff\xff\xff", 1)
    found, _warnings = read(written(tmp_path / "long.kvcap", HEADER + b"".join(packed)))
    assert found == records[:2] + records[3:]


def test_a_damaged_header_does_not_cost_the_records(tmp_path: Path) -> None:
    records = [small(number) for number in range(3)]
    header = HEADER[:12] + b"\xc1" + HEADER[13:]
    data = header + b"".join(map(pack_record, records))
    found, warnings = read(written(tmp_path / "head.kvcap", data))
    assert found == records
    assert warnings


@given(st.binary(max_size=400))
def test_any_bytes_are_read_refused_or_warned_of(tmp_path_factory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("any")
    for front in (b"", HEADER, b"\x28\xb5\x2f\xfd", b'{"pod": "a"}\n'):
        path = written(folder / "any", front + data)
        with contextlib.suppress(CaptureError):
            read(path)


@given(st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.binary(max_size=8)
    | st.text(max_size=8) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=7) | st.dictionaries(st.text(max_size=4), inner),
))  # fmt: skip
def test_any_object_between_records_is_damage(tmp_path_factory, value: object) -> None:
    records = [small(1), small(2)]
    data = HEADER + pack_record(records[0]) + msgpack.packb(value) + pack_record(records[1])
    path = written(tmp_path_factory.mktemp("object") / "x.kvcap", data)
    found, _warnings = read(path)
    assert found[0] == records[0]
    assert found[-1] == records[1]


@pytest.mark.parametrize("name", ["plain.kvcap", "small.kvcap.zst"])
def test_joined_files_read_as_one(tmp_path: Path, name: str) -> None:
    parts = []
    for number in range(2):
        path = tmp_path / f"{number}{name}"
        with CaptureWriter(path, pods={f"pod-{number}": {}}) as writer:
            writer.write(small(number))
        parts.append(path.read_bytes())
    joined = written(tmp_path / name, b"".join(parts))
    with open_capture(joined) as reader:
        assert list(reader) == [small(0), small(1)]
        assert set(reader.header.pods) == {"pod-0", "pod-1"}
        assert reader.warnings == []


def test_cut_compressed_data_is_read_up_to_the_last_flush(tmp_path: Path) -> None:
    path = tmp_path / "cut.kvcap.zst"
    writer = CaptureWriter(path)
    sizes = []
    for number in range(10):
        writer.write(small(number))
        writer.flush()
        sizes.append(path.stat().st_size)
    writer.close()
    data = path.read_bytes()
    for cut in range(sizes[0], len(data)):
        found, warnings = read(written(tmp_path / "cut", data[:cut]))
        assert len(found) >= sum(size <= cut for size in sizes)
        assert found == [small(number) for number in range(len(found))]
        (warning,) = warnings
        left = re.search(r"cut off at byte (\d+): (\d+) bytes left unread", warning)
        assert left is not None, warning
        assert int(left[1]) + int(left[2]) == cut


def test_damaged_compressed_data_ends_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "bad.kvcap.zst"
    with CaptureWriter(path) as writer:
        for record in wire_batches("fleet"):
            writer.write(record)
    data = bytearray(path.read_bytes())
    for at in range(len(data) // 4, len(data) - 1, 997):
        damaged = bytearray(data)
        damaged[at] ^= 0x55
        _found, warnings = read(written(tmp_path / "bad", bytes(damaged)))
        assert "the compressed data is damaged" in warnings[-1], at


def test_bad_lines_are_named_and_skipped(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    with CaptureWriter(path) as writer:
        writer.write(small(1))
        writer.write(small(2))
    good = path.read_bytes().splitlines(keepends=True)
    bad = [
        b"not json\n",
        b"[]\n",
        b'{"pod": 1}\n',
        b'{"recv_ts": 1, "pod": "a", "frames": ["$"]}\n',
    ]
    path.write_bytes(good[0] + b"".join(bad) + b"\n" + good[1] + good[0][:40])
    found, warnings = read(path)
    assert found == [small(1), small(2)]
    assert [text.split(":")[0] for text in warnings] == [
        "line 2",
        "line 3",
        "line 4",
        "line 5",
        "line 8",
    ]
    assert "cut off with 40 bytes left" in warnings[-1]


@pytest.mark.parametrize(
    "mark",
    [
        Gap(10**18, "pod-a", 1, 3, 9, True, "from the replay"),
        Restart(10**18, "pod-a", 0, None, "seq went back"),
        Restart(10**18, "pod-a", 0, 7, ""),
        Note(10**18, "pod-a", None, "connection lost"),
        WireBatch(10**18, "pod-\udcff", 3, b"\xff\xfe", 2**63 - 1, b""),
        WireBatch(10**18, "\ud800", 0, "\ud800".encode("utf-8", "surrogatepass"), 0, b""),
        WireBatch(1_500_000_000, "clock since boot", 0, b"", 0, b"\xc0"),
        Note(0, "", 0, ""),
    ],
)
@pytest.mark.parametrize("name", ["x.kvcap", "x.jsonl", "x.kvcap.zst", "x.jsonl.zst"])
def test_every_record_comes_back_as_it_was(tmp_path: Path, mark: object, name: str) -> None:
    with CaptureWriter(tmp_path / name) as writer:
        writer.write(mark)
    assert read(tmp_path / name) == ([mark], [])
