from __future__ import annotations

from pathlib import Path

import pytest

from kvctl.errors import KvctlError
from kvctl.operate.memory import FileMemory, PassingMemory


def test_a_text_is_there_for_the_next_process(tmp_path: Path) -> None:
    FileMemory("redis://a", tmp_path / "new").remember("reconcile", "one")
    FileMemory("redis://a", tmp_path / "new").remember("reconcile", "two")
    assert FileMemory("redis://a", tmp_path / "new").recall("reconcile") == "two"
    assert [path.suffix for path in (tmp_path / "new").iterdir()] == [".json"]


def test_another_index_or_name_is_another_memory(tmp_path: Path) -> None:
    FileMemory("redis://a", tmp_path).remember("reconcile", "one")
    assert FileMemory("redis://b", tmp_path).recall("reconcile") is None
    assert FileMemory("redis://a", tmp_path).recall("other") is None


def test_a_file_of_something_else_is_no_memory(tmp_path: Path) -> None:
    memory = FileMemory("redis://a", tmp_path)
    memory.remember("reconcile", "one")
    next(tmp_path.iterdir()).write_bytes(b"\xff\xfe")
    assert memory.recall("reconcile") is None


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KvctlError, match=r"XDG_STATE_HOME"):
        FileMemory("redis://a", tmp_path / "file").remember("reconcile", "one")


def test_a_passing_memory_leaves_the_lasting_one_alone(tmp_path: Path) -> None:
    lasting = FileMemory("redis://a", tmp_path)
    lasting.remember("reconcile", "one")
    passing = PassingMemory(lasting)
    assert passing.recall("reconcile") == "one"
    passing.remember("reconcile", "two")
    assert passing.recall("reconcile") == "two"
    assert lasting.recall("reconcile") == "one"
