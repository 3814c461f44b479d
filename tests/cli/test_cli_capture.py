"""`kvctl capture convert` and `redact` as a user runs them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvctl.capture import open_capture
from kvctl.capture.convert import convert


@pytest.mark.parametrize("command", ["convert", "redact"])
def test_an_interrupted_copy_is_whole_up_to_there_and_called_a_part(
    start, tmp_path: Path, command: str
) -> None:
    whole, pipe, copy = (tmp_path / name for name in ("whole.kvcap", "pipe", "copy.kvcap"))
    convert("demo:fleet", whole)
    os.mkfifo(pipe)
    copying = start("capture", command, pipe, copy)
    with pipe.open("wb", buffering=0) as source:  # it waits for more
        source.write(whole.read_bytes()[:-5000])
        copying.wait_until(lambda: copy.exists() and copy.stat().st_size, "no copy")
        assert copying.interrupt() == 130
    assert copying.err == f"{copy}: interrupted, it holds what had been read by then\n"
    with open_capture(copy) as reader:
        records = list(reader)
    assert reader.warnings == []
    assert len(records) < 70


def test_a_copy_that_has_not_begun_is_no_part(start, tmp_path: Path) -> None:
    pipe, copy = tmp_path / "pipe", tmp_path / "copy.kvcap"
    os.mkfifo(pipe)
    copying = start("capture", "convert", pipe, copy)
    with pipe.open("wb"):  # opened, and nothing to read yet
        assert copying.interrupt() == 130
    assert copying.err == ""
    assert not copy.exists()
