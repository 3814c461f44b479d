"""Compressed captures: cut, damaged, joined, of odd make."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

import pytest
import zstandard
from recordings import wire_batches

from kvctl.capture import CaptureError, CaptureWriter, open_capture
from kvctl.capture.inflate import Inflated
from kvctl.events import WireBatch


def inflate(data: bytes) -> tuple[bytes, str]:
    inflated = Inflated(io.BytesIO(data))
    return inflated.read(), inflated.fault


def blocks(parts: list[bytes]) -> tuple[bytes, list[int]]:
    """One frame with a block for each part, and where in it each block ends."""
    squeeze = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    data, ends = b"", []
    for part in parts:
        data += squeeze.compress(part) + squeeze.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        ends.append(len(data))
    return data + squeeze.flush(), ends


def numbers(fault: str) -> list[int]:
    """The place of a fault, and the count of bytes left."""
    return [int(word) for word in re.findall(r"\d+", fault)]


PARTS = [batch.payload for batch in wire_batches("fleet")[:20]] + [b"same" * 500, os.urandom(400)]


def test_whole_data_is_inflated_without_a_fault() -> None:
    data, _ends = blocks(PARTS)
    assert inflate(data) == (b"".join(PARTS), "")


@pytest.mark.parametrize("checksum", [True, False])
def test_frames_one_behind_the_other_are_one_stream(checksum: bool) -> None:
    squeeze = zstandard.ZstdCompressor(write_checksum=checksum, write_content_size=True)
    data = b"".join(squeeze.compress(part) for part in [*PARTS, b"", b"x" * 2_000_000])
    assert inflate(data) == (b"".join(PARTS) + b"x" * 2_000_000, "")


def test_a_cut_anywhere_keeps_every_block_in_front_of_it() -> None:
    data, ends = blocks(PARTS)
    for cut in range(1, len(data)):
        found, fault = inflate(data[:cut])
        whole = sum(end <= cut for end in ends)
        assert found == b"".join(PARTS[:whole])
        assert "cut off" in fault
        assert sum(numbers(fault)) == cut


def test_damage_keeps_every_block_in_front_of_it() -> None:
    data, ends = blocks(PARTS)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        found, fault = inflate(bytes(damaged))
        whole = sum(end <= at for end in ends)
        assert found.startswith(b"".join(PARTS[:whole])), at
        assert fault or found == b"".join(PARTS), at


def test_what_follows_the_last_frame_and_is_none_is_told() -> None:
    data, _ends = blocks(PARTS)
    found, fault = inflate(data + b"trailing text")
    assert found == b"".join(PARTS)
    assert "damaged" in fault
    assert numbers(fault) == [len(data), len(b"trailing text")]


def test_a_frame_that_wants_more_memory_than_is_given_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=28, enable_ldm=True)
    squeeze = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    found, fault = inflate(squeeze.compress(b"a" * 100) + squeeze.flush())
    assert found == b""
    assert "too much memory" in fault


def test_a_capture_cut_in_its_first_block_says_so(tmp_path: Path) -> None:
    path = tmp_path / "x.kvcap.zst"
    CaptureWriter(path).close()
    path.write_bytes(path.read_bytes()[:11])
    with pytest.raises(CaptureError, match="cut off at byte 6: 5 bytes left unread"):
        open_capture(path)


def test_a_cut_in_the_middle_of_a_record_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "x.kvcap.zst"
    with CaptureWriter(path) as writer:
        writer.write(WireBatch(10**18, "pod-a", 0, b"kv", 0, b""))
        writer.write(WireBatch(10**18, "pod-a", 0, b"kv", 1, os.urandom(1_000_000)))
    path.write_bytes(path.read_bytes()[:500_000])
    with open_capture(path) as reader:
        (record,) = reader
    assert isinstance(record, WireBatch)
    assert record.seq == 0
    (warning,) = reader.warnings
    assert sum(numbers(warning)) == 500_000


def test_the_largest_batch_is_read_back_from_a_compressed_file(tmp_path: Path) -> None:
    payload = os.urandom(64 * 2**20)
    path = tmp_path / "x.kvcap.zst"
    with CaptureWriter(path) as writer:
        writer.write(WireBatch(10**18, "pod-a", 0, b"kv", 0, payload))
        writer.write(WireBatch(10**18, "pod-a", 0, b"kv", 1, b""))
    with open_capture(path) as reader:
        first, second = reader
    assert isinstance(first, WireBatch)
    assert first.payload == payload
    assert isinstance(second, WireBatch)
    assert (second.seq, reader.warnings) == (1, [])


def test_a_flipped_byte_in_a_compressed_capture_spares_what_was_flushed_before(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.kvcap.zst"
    records = wire_batches("warm") + wire_batches("lora")[:6]
    sizes = []
    with CaptureWriter(path) as writer:
        for record in records:
            writer.write(record)
            writer.flush()
            sizes.append(path.stat().st_size)
    data = path.read_bytes()
    for at in range(40, len(data), 3):
        damaged = bytearray(data)
        damaged[at] ^= 0xFF
        path.write_bytes(damaged)
        try:
            with open_capture(path) as reader:
                found = list(reader)
        except CaptureError:
            assert at < sizes[0]
            continue
        before = sum(size <= at for size in sizes)
        assert found[:before] == records[:before]
        assert reader.warnings
