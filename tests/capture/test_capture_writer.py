"""Writing: whose file it is, which form it has, what is on disk at which moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from recordings import CAPTURES, wire_batches

from kvctl import __version__
from kvctl.capture import CaptureError, CaptureHeader, CaptureWriter, open_capture
from kvctl.capture.convert import convert
from kvctl.capture.redact import redact
from kvctl.events import MAX_PAYLOAD, Note, WireBatch

FORMS = ["x.kvcap", "x.jsonl", "x.kvcap.zst", "x.jsonl.zst"]
BATCHES = wire_batches("warm")


def read(path: Path) -> list:
    with open_capture(path) as reader:
        return list(reader)


@pytest.mark.parametrize("form", FORMS)
def test_force_makes_a_readable_file_its_owners_alone(tmp_path: Path, form: str) -> None:
    path = tmp_path / form
    path.write_bytes(b"old")
    path.chmod(0o644)
    CaptureWriter(path, force=True).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_force_leaves_the_mode_of_what_is_no_file_alone(tmp_path: Path) -> None:
    """Of a device, say; tried on a pipe, since a device would stay spoilt."""
    path = tmp_path / "pipe"
    os.mkfifo(path, 0o644)
    path.chmod(0o644)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with CaptureWriter(path, force=True) as writer:
            writer.write(BATCHES[0])
        assert os.read(reader, 100).startswith(b"\x85\xa6format")
    finally:
        os.close(reader)
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("x.kvcap", b"\x85\xa6format"),
        ("x", b"\x85\xa6format"),
        ("x.jsonl.kvcap", b"\x85\xa6format"),
        ("x.jsonl", b'{"recv_ts"'),
        ("X.JSONL", b'{"recv_ts"'),
        ("x.zst", b"\x28\xb5\x2f\xfd"),
        ("x.jsonl.zst", b"\x28\xb5\x2f\xfd"),
    ],
)
def test_the_name_chooses_the_form(tmp_path: Path, name: str, start: bytes) -> None:
    with CaptureWriter(tmp_path / name) as writer:
        writer.write(BATCHES[0])
    assert (tmp_path / name).read_bytes().startswith(start)
    assert read(tmp_path / name) == BATCHES[:1]


@pytest.mark.parametrize("form", FORMS)
def test_what_is_flushed_can_be_read_while_the_writer_goes_on(tmp_path: Path, form: str) -> None:
    path = tmp_path / form
    with CaptureWriter(path) as writer:
        for count, batch in enumerate(BATCHES, 1):
            writer.write(batch)
            writer.flush()
            assert read(path) == BATCHES[:count]
        assert writer.bytes_written == path.stat().st_size
    assert writer.records == len(BATCHES)
    assert writer.bytes_written == path.stat().st_size


FLUSHED_THEN_KILLED = """
import os, signal, sys
from kvctl.capture import CaptureWriter
from kvctl.events import WireBatch
writer = CaptureWriter(sys.argv[1])
for number in range(100):
    writer.write(WireBatch(10**18 + number, "pod-a", 0, b"kv", number, os.urandom(5000)))
writer.flush()
for number in range(100, 110):
    writer.write(WireBatch(10**18 + number, "pod-a", 0, b"kv", number, os.urandom(5000)))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("form", FORMS)
def test_a_killed_writer_loses_nothing_that_was_flushed(tmp_path: Path, form: str) -> None:
    path = tmp_path / form
    done = subprocess.run([sys.executable, "-c", FLUSHED_THEN_KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    seqs = [record.seq for record in read(path)]
    assert seqs == list(range(len(seqs)))
    assert len(seqs) >= 100


@pytest.mark.parametrize("form", FORMS)
def test_an_empty_file_may_be_continued(tmp_path: Path, form: str) -> None:
    (tmp_path / form).touch()
    with CaptureWriter(tmp_path / form, append=True) as writer:
        writer.write(BATCHES[0])
    assert read(tmp_path / form) == BATCHES[:1]


def test_no_file_is_called_by_the_name_of_stdin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for how in ({}, {"force": True}, {"append": True}):
        with pytest.raises(CaptureError, match="'-' is no file to write a capture to"):
            CaptureWriter("-", **how)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("copy", [convert, partial(redact, key=b"k" * 16)])
@pytest.mark.parametrize("name", ["x.kvcap", "link.kvcap", "hard.kvcap", "folder/../x.kvcap"])
def test_a_capture_is_never_copied_onto_itself(
    tmp_path: Path, copy: Callable[..., object], name: str
) -> None:
    source = tmp_path / "x.kvcap"
    convert("demo:fleet", source)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.kvcap").symlink_to(source)
    (tmp_path / "hard.kvcap").hardlink_to(source)
    before = source.read_bytes()
    with pytest.raises(CaptureError, match="is the capture that is read"):
        copy(source, tmp_path / name, force=True)
    assert source.read_bytes() == before


def test_a_source_that_is_none_leaves_the_target_alone(tmp_path: Path) -> None:
    target = tmp_path / "y.kvcap"
    with pytest.raises(CaptureError, match="cannot read"):
        convert(tmp_path / "none", target)
    assert not target.exists()


def test_conversion_keeps_the_header(tmp_path: Path) -> None:
    header = CaptureHeader(1.5e9, "0.0.1", pods={"pod-a": {"events": ["tcp://h:5557"]}})
    with CaptureWriter(tmp_path / "x.kvcap", header=header) as writer:
        writer.write(BATCHES[0])
    convert(tmp_path / "x.kvcap", tmp_path / "y.kvcap.zst")
    convert(tmp_path / "y.kvcap.zst", tmp_path / "z.kvcap")
    assert (tmp_path / "z.kvcap").read_bytes() == (tmp_path / "x.kvcap").read_bytes()


def test_what_is_made_of_lines_has_a_header_of_its_own(tmp_path: Path) -> None:
    convert(CAPTURES / "warm.jsonl", tmp_path / "x.kvcap")
    redact(CAPTURES / "warm.jsonl", tmp_path / "y.kvcap", key=b"k" * 16)
    for name in ("x.kvcap", "y.kvcap"):
        with open_capture(tmp_path / name) as reader:
            assert reader.header.created is not None
            assert reader.header.kvctl == __version__


def test_conversion_tells_what_was_damaged(tmp_path: Path) -> None:
    convert("demo:warm", tmp_path / "x.kvcap")
    data = (tmp_path / "x.kvcap").read_bytes()
    (tmp_path / "x.kvcap").write_bytes(data[:-5])
    done = convert(tmp_path / "x.kvcap", tmp_path / "y.kvcap")
    assert done.records == 3
    assert "bytes left unread" in done.warnings[0]


def test_a_message_too_large_to_be_read_again_becomes_a_note(tmp_path: Path) -> None:
    large = WireBatch(10**18, "pod-a", 0, bytes(2 * 2**20), 5, bytes(MAX_PAYLOAD))
    with CaptureWriter(tmp_path / "x.kvcap") as writer:
        for record in (BATCHES[0], large, BATCHES[1]):
            writer.write(record)
    first, note, last = read(tmp_path / "x.kvcap")
    assert [first, last] == BATCHES[:2]
    assert isinstance(note, Note)
    assert "seq 5: a message of 69206016 bytes is too large" in note.text


def test_a_topic_of_megabytes_is_kept(tmp_path: Path) -> None:
    odd = WireBatch(10**18, "pod-a", 0, b"t" * 3_000_000, 0, b"")
    with CaptureWriter(tmp_path / "x.kvcap") as writer:
        writer.write(odd)
    assert read(tmp_path / "x.kvcap") == [odd]


LIMITED = """
import resource, signal, sys
from kvctl.capture import CaptureError, CaptureWriter
from kvctl.events import WireBatch
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    with CaptureWriter(sys.argv[1]) as writer:
        for number in range(100):
            writer.write(WireBatch(10**18, "pod-a", 0, b"kv", number, bytes(3000)))
            writer.flush()
except CaptureError as error:
    print(error)
"""


def write_limited(path: Path, limit: int) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LIMITED, str(path), str(limit)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(f"cannot write {path}: File too large")
    assert done.stderr == ""


def test_what_was_written_before_there_was_no_more_room_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "x.kvcap"
    write_limited(path, 100_000)
    with open_capture(path) as reader:
        seqs = [record.seq for record in reader]
    assert seqs == list(range(100_000 // 3029))
    assert "cut off" in reader.warnings[0]


def test_no_room_even_for_the_header_names_the_file(tmp_path: Path) -> None:
    write_limited(tmp_path / "x.kvcap", 10)
