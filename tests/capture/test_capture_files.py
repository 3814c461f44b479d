"""Writing captures, and what reads them: convert, info, demos."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgpack
import pytest
from recordings import CAPTURES, frames, lines, wire_batches

from kvctl.capture import CaptureError, CaptureWriter, capture_info, demo_names, open_capture
from kvctl.capture.convert import convert
from kvctl.events import Batch, Gap, Note, Restart, Undecodable, WireBatch, decode_record

RECORDINGS = sorted(path.stem for path in CAPTURES.glob("*.jsonl") if "replay" not in path.stem)


def records_of(path: Path | str) -> list:
    with open_capture(path) as reader:
        found = list(reader)
        assert reader.warnings == []
        return found


@pytest.mark.parametrize("name", [n for n in RECORDINGS if "0.9.1" not in n and "0.11" not in n])
def test_a_recording_is_read_frame_by_frame(name: str) -> None:
    assert records_of(CAPTURES / f"{name}.jsonl") == wire_batches(name)


@pytest.mark.parametrize("name", ["replay-router-from0", "synthetic-replay-3frames"])
def test_replay_answers_are_read_without_their_end_marker(name: str) -> None:
    told = [frames(line) for line in lines(name)]
    found = records_of(CAPTURES / f"{name}.jsonl")
    assert [record.payload for record in found] == [each[-1] for each in told[:-1]]
    assert [record.topic for record in found] == [each[-3] for each in told[:-1]]


@pytest.mark.parametrize("name", RECORDINGS)
def test_conversion_keeps_everything_through_every_form(tmp_path: Path, name: str) -> None:
    forms = ["a.kvcap", "b.jsonl", "c.kvcap.zst", "d.jsonl.zst", "e.kvcap"]
    source = CAPTURES / f"{name}.jsonl"
    expected = records_of(source)
    for form in forms:
        done = convert(source, tmp_path / form)
        assert done.records == len(expected)
        assert records_of(tmp_path / form) == expected
        source = tmp_path / form


@pytest.mark.parametrize("name", demo_names())
def test_a_shipped_recording_is_the_recording(name: str) -> None:
    assert records_of(f"demo:{name}") == wire_batches(name)


def test_an_unknown_demo_names_those_there_are() -> None:
    with pytest.raises(CaptureError, match="demo:nothing") as caught:
        open_capture("demo:nothing")
    assert "demo:fleet" in caught.value.remedy


def test_a_capture_can_be_read_with_msgpack_alone(tmp_path: Path) -> None:
    wire = wire_batches("warm")[0]
    with CaptureWriter(tmp_path / "x.kvcap", pods={"pod-a": {"events": ["tcp://h:1"]}}) as writer:
        writer.write(wire)
    with (tmp_path / "x.kvcap").open("rb") as file:
        header, record = msgpack.Unpacker(file)
    assert (header["format"], header["version"]) == ("kvcap", 1)
    assert header["pods"] == {"pod-a": {"events": ["tcp://h:1"]}}
    assert record == [wire.recv_ns, "pod-a", 0, "kv@pod-a@tiny", 0, wire.payload]


def test_written_lines_are_the_recordings_form(tmp_path: Path) -> None:
    convert(CAPTURES / "warm.jsonl", tmp_path / "x.jsonl")
    import json

    for line, original in zip(
        (tmp_path / "x.jsonl").read_text().splitlines(), lines("warm"), strict=True
    ):
        told = json.loads(line)
        assert [base64.b64decode(f) for f in told["frames"]] == frames(original)
        assert (told["pod"], told["rank"]) == (original["pod"], 0)
        assert told["recv_ts"] == pytest.approx(original["recv_ts"], abs=1e-6)


def test_decoded_records_are_written_as_they_came(tmp_path: Path) -> None:
    good = decode_record(wire_batches("warm")[0])
    bad = decode_record(WireBatch(10**18, "pod-a", 0, b"", 1, b"junk"))
    assert isinstance(good, Batch)
    assert isinstance(bad, Undecodable)
    with CaptureWriter(tmp_path / "x.kvcap") as writer:
        writer.write(good)
        writer.write(bad)
        assert writer.records == 2
    assert records_of(tmp_path / "x.kvcap") == [good.wire, bad.wire]


def test_a_capture_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with CaptureWriter(tmp_path / "x.kvcap"):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "x.kvcap").stat().st_mode & 0o777 == 0o600


def test_an_existing_file_is_neither_replaced_nor_continued_unasked(tmp_path: Path) -> None:
    path = tmp_path / "x.kvcap"
    path.write_bytes(b"precious")
    with pytest.raises(CaptureError, match="--force overwrites it, --append continues it"):
        CaptureWriter(path)
    with pytest.raises(CaptureError, match="not a capture"):
        CaptureWriter(path, append=True)
    assert path.read_bytes() == b"precious"
    with CaptureWriter(path, force=True) as writer:
        writer.write(wire_batches("warm")[0])
    assert len(records_of(path)) == 1


@pytest.mark.parametrize("name", ["x.kvcap", "x.jsonl", "x.kvcap.zst", "x.jsonl.zst"])
def test_append_continues_a_capture(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    batches = wire_batches("warm")
    for batch in batches:
        with CaptureWriter(path, append=True) as writer:
            writer.write(batch)
    assert records_of(path) == batches


def test_append_behind_a_cut_loses_only_the_cut_record(tmp_path: Path) -> None:
    path = tmp_path / "x.kvcap"
    batches = wire_batches("warm")
    with CaptureWriter(path) as writer:
        writer.write(batches[0])
        writer.write(batches[1])
    path.write_bytes(path.read_bytes()[:-5])
    with CaptureWriter(path, append=True) as writer:
        writer.write(batches[2])
    with open_capture(path) as reader:
        assert list(reader) == [batches[0], batches[2]]
        assert "skipped" in reader.warnings[0]


@pytest.mark.parametrize("name", ["x.kvcap.zst", "x.jsonl"])
def test_append_where_nothing_can_stand_behind_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with CaptureWriter(path) as writer:
        for batch in wire_batches("warm"):
            writer.write(batch)
    path.write_bytes(path.read_bytes()[:-3])
    torn = path.read_bytes()
    with pytest.raises(CaptureError, match="kvctl capture convert"):
        CaptureWriter(path, append=True)
    assert path.read_bytes() == torn


def test_append_of_another_form_is_refused(tmp_path: Path) -> None:
    convert("demo:warm", tmp_path / "x.jsonl")
    (tmp_path / "x.jsonl").rename(tmp_path / "x.kvcap")
    with pytest.raises(CaptureError, match="another form"):
        CaptureWriter(tmp_path / "x.kvcap", append=True)


def test_a_folder_or_missing_folder_names_itself(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="cannot write"):
        CaptureWriter(tmp_path / "none" / "x.kvcap")
    with pytest.raises(CaptureError, match="cannot read"):
        open_capture(tmp_path)


WRITER = """
import sys, time
from kvctl.capture import CaptureWriter
from kvctl.events import WireBatch
writer = CaptureWriter(sys.argv[1])
number = 0
while True:
    writer.write(WireBatch(10**18 + number, "pod-a", 0, b"kv", number, b"x" * 100))
    number += 1
    print(number, time.time(), flush=True)
    time.sleep(0.001)
"""


@pytest.mark.parametrize("name", ["x.kvcap", "x.kvcap.zst", "x.jsonl"])
def test_a_killed_writer_loses_at_most_the_last_second(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    written: list[tuple[int, float]] = []
    began = time.time()
    for line in process.stdout:
        number, moment = line.split()
        written.append((int(number), float(moment)))
        if time.time() - began > 2.5:
            break
    process.send_signal(signal.SIGKILL)
    killed = time.time()
    process.wait()
    process.stdout.close()
    with open_capture(path) as reader:
        found = list(reader)
    assert [record.seq for record in found] == list(range(len(found)))
    older = [number for number, moment in written if moment < killed - 1.0]
    assert len(found) >= older[-1]


def test_info_counts_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "x.kvcap"
    batches = wire_batches("warm")
    with CaptureWriter(path, pods={"pod-a": {}}) as writer:
        for record in [
            batches[0],
            Gap(10**18, "pod-a", 0, 1, 1, False, ""),
            batches[2],
            batches[3],
            Restart(10**18, "pod-a", 0, 3, "seq went back"),
            batches[0],
            Note(10**18, "pod-a", None, "hello"),
            WireBatch(batches[3].recv_ns, "pod-a", 0, b"kv@pod-a@tiny", 1, b"junk"),
        ]:
            writer.write(record)
    info = capture_info(path).to_dict()
    assert (info["batches"], info["undecodable"], info["notes"]) == (5, 1, 1)
    assert info["events"]["BlockStored"] == 4
    assert [(gap["pod"], gap["from_seq"], gap["to_seq"]) for gap in info["gaps"]] == [
        ("pod-a", 1, 1)
    ]
    assert [each["reason"] for each in info["restarts"]] == ["seq went back"]
    (stream,) = info["streams"]
    assert (stream["seq_jumps"], stream["seq_returns"]) == (0, 0)
    assert info["first_ts"] == pytest.approx(batches[0].recv_ns / 1e9)


def test_info_of_a_foreign_recording_finds_jumps_and_returns() -> None:
    (stream,) = capture_info(CAPTURES / "restart.jsonl").to_dict()["streams"]
    assert (stream["first_seq"], stream["last_seq"], stream["seq_returns"]) == (2, 1, 1)


def test_info_counts_the_seqs_passed_over_in_a_capture_without_marks(tmp_path: Path) -> None:
    with CaptureWriter(tmp_path / "x.kvcap") as writer:
        for rank, seq in ((0, 3), (1, 40), (0, 4), (0, 8), (1, 41), (0, 9), (0, 2), (0, 4)):
            writer.write(WireBatch(10**18, "pod-a", rank, b"kv", seq, b"\x93"))
    first, second = capture_info(tmp_path / "x.kvcap").streams
    assert (first.rank, first.first_seq, first.last_seq) == (0, 3, 4)
    assert (first.batches, first.seq_jumps, first.seq_returns) == (6, 3 + 1, 1)
    assert (second.rank, second.seq_jumps, second.seq_returns) == (1, 0, 0)


def test_position_reaches_the_size(tmp_path: Path) -> None:
    for name in ("x.kvcap", "x.kvcap.zst", "x.jsonl"):
        convert("demo:fleet", tmp_path / name)
        with open_capture(tmp_path / name) as reader:
            for _ in reader:
                assert 0 < reader.position <= reader.size
            assert reader.position == reader.size
