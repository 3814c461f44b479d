"""What can be opened: files of any form and standard input; what cannot is told in one line."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import msgpack
import pytest
from recordings import CAPTURES, wire_batches

from kvctl.capture import CaptureError, CaptureHeader, CaptureWriter, open_capture
from kvctl.capture.convert import convert
from kvctl.capture.format import new_header, pack_header, pack_record

FORMS = ["x.kvcap", "x.jsonl", "x.kvcap.zst", "x.jsonl.zst"]


def refusal(path: Path | str) -> str:
    with pytest.raises(CaptureError) as caught:
        open_capture(path)
    assert caught.value.exit_code == 1
    assert caught.value.remedy
    text = str(caught.value)
    assert "\n" not in text
    assert str(path) in text
    return text


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "none.kvcap")
    assert "Is a directory" in refusal(tmp_path)


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no file here that fails to read")
def test_a_file_that_cannot_be_read_is_named() -> None:
    assert "cannot read" in refusal("/proc/self/mem")


@pytest.mark.parametrize("name", ["empty.kvcap", "empty.jsonl"])
def test_an_empty_file_is_called_empty(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert "is empty" in refusal(tmp_path / name)


@pytest.mark.parametrize(
    "data",
    [
        b"hello, this is a text\n",
        b"   \n\n",
        b'{"log": "a line of something else"}\n' * 5,
        b'{\n  "one": "document"\n}\n',
        b"\x7fELF" + bytes(2000),
        b"\x89PNG\r\n\x1a\n" + random.Random(1).randbytes(5000),
        b"\x1f\x8b\x08" + random.Random(2).randbytes(5000),
        msgpack.packb({"format": "other", "version": 1}),
        b"\x96\xcf",
    ],
)
@pytest.mark.parametrize("name", ["x.kvcap", "x.jsonl"])
def test_something_else_is_not_a_capture_whatever_its_name(
    tmp_path: Path, name: str, data: bytes
) -> None:
    (tmp_path / name).write_bytes(data)
    assert "is not a capture" in refusal(tmp_path / name)


def test_a_long_file_of_other_lines_is_given_up_soon(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    with path.open("wb") as file:
        file.write(b'{"log": "a line of something else"}\n' * 200)
        CaptureWriter(tmp_path / "y.jsonl").close()
    convert(CAPTURES / "warm.jsonl", tmp_path / "y.jsonl", force=True)
    path.write_bytes(path.read_bytes() + (tmp_path / "y.jsonl").read_bytes())
    assert "is not a capture" in refusal(path)


@pytest.mark.parametrize("made_by", ["2.0.0", ""])
def test_a_newer_version_names_the_kvctl_that_is_needed(tmp_path: Path, made_by: str) -> None:
    path = tmp_path / "x.kvcap"
    path.write_bytes(pack_header(CaptureHeader(1.0, made_by, 2)))
    text = refusal(path)
    assert "format version 2" in text
    assert f"install kvctl {made_by} or newer" in text or not made_by
    assert "newer" in text


def test_a_newer_version_may_not_be_continued(tmp_path: Path) -> None:
    path = tmp_path / "x.kvcap"
    path.write_bytes(pack_header(CaptureHeader(1.0, "2.0.0", 2)))
    before = path.read_bytes()
    with pytest.raises(CaptureError, match="format version 2"):
        CaptureWriter(path, append=True)
    assert path.read_bytes() == before


def test_a_capture_cut_in_its_header_is_an_empty_one(tmp_path: Path) -> None:
    header = pack_header(new_header())
    path = tmp_path / "x.kvcap"
    for cut in range(14, len(header)):
        path.write_bytes(header[:cut])
        with open_capture(path) as reader:
            assert list(reader) == []
        assert reader.warnings == [f"cut off at byte 0: {cut} bytes left unread"]


@pytest.mark.parametrize("at", range(16))
def test_damage_at_the_very_start_does_not_cost_the_records(tmp_path: Path, at: int) -> None:
    records = wire_batches("warm")
    data = bytearray(pack_header(new_header()) + b"".join(map(pack_record, records)))
    data[at] ^= 0x10
    path = tmp_path / "x.kvcap"
    path.write_bytes(data)
    with open_capture(path) as reader:
        assert list(reader) == records


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("other", ["named.kvcap", "named.jsonl", "named.txt.zst"])
def test_the_content_and_not_the_name_tells_the_form(tmp_path: Path, form: str, other: str) -> None:
    convert(CAPTURES / "warm.jsonl", tmp_path / form)
    path = (tmp_path / form).rename(tmp_path / other)
    with open_capture(path) as reader:
        assert list(reader) == wire_batches("warm")


READ_STDIN = """
from kvctl.capture import capture_info
info = capture_info("-")
print(info.tally.batches, info.size, list(info.warnings))
"""


@pytest.mark.parametrize("form", FORMS)
def test_standard_input_is_read_from_a_pipe(tmp_path: Path, form: str) -> None:
    convert(CAPTURES / "fleet.jsonl", tmp_path / form)
    done = subprocess.run(
        [sys.executable, "-c", READ_STDIN],
        input=(tmp_path / form).read_bytes(),
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode().strip() == f"{len(wire_batches('fleet'))} 0 []"


def test_standard_input_that_is_a_file_has_its_size(tmp_path: Path) -> None:
    path = tmp_path / "x.kvcap"
    convert(CAPTURES / "warm.jsonl", path)
    with path.open("rb") as file:
        done = subprocess.run(
            [sys.executable, "-c", READ_STDIN], stdin=file, capture_output=True, check=True
        )
    assert done.stdout.decode().strip() == f"4 {path.stat().st_size} []"


def test_the_header_says_what_the_writer_knew(tmp_path: Path) -> None:
    pods = {"pod-a": {"events": ["tcp://h:5557"], "replay": []}}
    with CaptureWriter(tmp_path / "x.kvcap", pods=pods) as writer:
        writer.write(wire_batches("warm")[0])
    with open_capture(tmp_path / "x.kvcap") as reader:
        assert (reader.header.pods, reader.header.version) == (pods, 1)
        assert reader.header.created is not None
        assert reader.header.kvctl
    with open_capture(CAPTURES / "warm.jsonl") as reader:
        assert reader.header == CaptureHeader()


def test_a_flood_of_warnings_ends_in_a_count(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    convert(CAPTURES / "warm.jsonl", path)
    path.write_bytes(path.read_bytes() + b"not json\n" * 1000)
    with open_capture(path) as reader:
        assert len(list(reader)) == 4
    assert len(reader.warnings) == 101
    assert reader.warnings[-1] == "900 more warnings like these"


def test_an_overlong_line_is_skipped_and_the_numbers_of_lines_stay_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvctl.capture.jsonl._LONGEST_LINE", 5000)
    path = tmp_path / "x.jsonl"
    convert(CAPTURES / "warm.jsonl", path)
    first, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + b"[" * 12_000 + b"\n" + b"".join(rest) + b"oops\n")
    with open_capture(path) as reader:
        assert list(reader) == wire_batches("warm")
    assert reader.warnings == ["line 2: longer than any record", "line 6: not JSON"]


def test_a_replay_answer_that_held_nothing_is_a_capture_of_nothing(tmp_path: Path) -> None:
    end = (CAPTURES / "replay-router-from0.jsonl").read_bytes().splitlines(keepends=True)[-1]
    (tmp_path / "x.jsonl").write_bytes(end)
    with open_capture(tmp_path / "x.jsonl") as reader:
        assert list(reader) == []
        assert reader.warnings == []
