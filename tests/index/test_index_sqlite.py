"""The index in an SQLite file: the same as in memory, and still there after a kill."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from builders import batch, cleared, removed, stored, tokens
from hypothesis import given, settings
from recordings import wire_batches

from kvctl.errors import KvctlError
from kvctl.events import Batch, Event, Record, Restart, Undecodable, WireBatch, decode_record
from kvctl.index import MemoryIndex, Prompt, Removals, SqliteIndex
from kvctl.stream import order_capture


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index.sqlite"


@pytest.fixture
def index(path: Path) -> Iterator[SqliteIndex]:
    with SqliteIndex(path) as index:
        yield index


def at(record: Batch, seq: int) -> Batch:
    wire = record.wire
    return Batch(WireBatch(wire.recv_ns, wire.pod, wire.rank, wire.topic, seq, b""), record.events)


def held(index: Any) -> set:
    return set(index.entries())


def records_of(name: str) -> list[Record]:
    return list(order_capture(wire_batches(name)))


@pytest.mark.parametrize("name", ["warm", "restart", "hybrid", "dp2", "fleet", "lora", "evict"])
def test_a_recording_ends_as_it_does_in_memory(path: Path, name: str) -> None:
    memory = MemoryIndex()
    with SqliteIndex(path) as index:
        for record in records_of(name):
            index.apply(record)
            memory.apply(record)
        assert held(index) == held(memory)
        assert index.summary() == memory.summary()
    with SqliteIndex(path, read_only=True) as again:
        assert held(again) == held(memory)


def test_a_block_in_two_media_counts_once_for_the_group_that_decides(index: SqliteIndex) -> None:
    memory = MemoryIndex()
    events = [
        stored([1], tokens(1), None, size=4),
        stored([2], [], None, size=0, medium="CPU", group_idx=1),
        stored([2], [], None, size=0, group_idx=1),
    ]
    for each in (index, memory):
        each.apply(at(batch(*events), 0))
    prompt = Prompt(tuple(tokens(1)))
    assert memory.match(prompt)["pod-a"].blocks == 1
    assert index.match(prompt) == memory.match(prompt)


def test_a_clear_leaves_nothing_of_the_groups_before_it(index: SqliteIndex) -> None:
    memory = MemoryIndex()
    events = [
        stored([1], tokens(1), None, size=4),
        cleared(),
        stored([1, 2], [], None, size=0),
        stored([1, 2], tokens(1, 2), None, size=4, group_idx=1),
    ]
    for each in (index, memory):
        each.apply(at(batch(*events), 0))
    prompt = Prompt(tuple(tokens(1, 2)))
    assert memory.match(prompt)["pod-a"].blocks == 2
    assert index.match(prompt) == memory.match(prompt)


# Few blocks and short prompts, so that prefixes meet. An engine's hash follows from the prefix.
PROMPTS = st.lists(st.integers(1, 2), min_size=1, max_size=4).map(tuple)
LORAS = st.sampled_from([None, "ad1"])
MEDIA = st.sampled_from([None, "CPU"])
GROUPS = st.sampled_from([None, 1])


def named(lora: str | None, prefix: tuple[int, ...]) -> int:
    return hash((lora, prefix)) & (2**64 - 1)


@st.composite
def stores(draw: st.DrawFn) -> Event:
    """The blocks of a prompt from some block on, whose parent may never have been seen."""
    prompt, lora = draw(PROMPTS), draw(LORAS)
    first = draw(st.integers(0, len(prompt) - 1))
    names = [named(lora, prompt[: at + 1]) for at in range(first, len(prompt))]
    told = draw(st.integers(0, 4)) > 0
    return stored(
        names,
        tokens(*prompt[first:]) if told else [],
        named(lora, prompt[:first]) if first else None,
        size=4 if told else 0,
        medium=draw(MEDIA),
        group_idx=draw(GROUPS),
        lora_name=lora,
    )


REMOVES = st.builds(
    lambda prompt, lora, medium, group: removed(
        named(lora, prompt), medium=medium, group_idx=group
    ),
    PROMPTS,
    LORAS,
    MEDIA,
    GROUPS,
)
EVENTS = stores() | REMOVES | st.builds(cleared)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["pod-a", "pod-b"]),
        st.integers(0, 1),
        st.one_of(st.lists(EVENTS, min_size=1, max_size=3), st.just("restart"), st.just("commit")),
    ),
    max_size=25,
)


@settings(max_examples=150)
@given(steps=STEPS, removals=st.sampled_from(list(Removals)))
def test_after_any_events_it_holds_what_the_index_in_memory_holds(
    tmp_path_factory, steps: list, removals: Removals
) -> None:
    memory = MemoryIndex(removals=removals)
    with SqliteIndex(tmp_path_factory.mktemp("index") / "x", removals=removals) as index:
        for number, (pod, rank, step) in enumerate(steps):
            if step == "commit":
                index.commit()
                continue
            record: Record
            if step == "restart":
                record = Restart(0, pod, rank, None, "test")
            else:
                record = at(batch(*step, pod=pod, rank=rank, ts=1000.0 + number), number)
            memory.apply(record)
            index.apply(record)
        assert held(index) == held(memory)
        ours = {(s.pod, s.rank): s for s in index.summary().streams if s.entries}
        theirs = {(s.pod, s.rank): s for s in memory.summary().streams if s.entries}
        for key, stream in theirs.items():
            assert (ours[key].entries, ours[key].unanchored) == (stream.entries, stream.unanchored)
            assert ours[key].media == stream.media
        for prompt in ((1, 2, 1), (2, 2), (1,)):
            for lora in (None, "ad1"):
                wanted = Prompt(tuple(tokens(*prompt)), None, lora)
                found = {
                    p: m for p, m in index.match(wanted).items() if p in {k[0] for k in theirs}
                }
                for pod, match in found.items():
                    other = memory.match(wanted)[pod]
                    assert (match.blocks, match.blocks_any_medium) == (
                        other.blocks,
                        other.blocks_any_medium,
                    )


def test_what_is_not_committed_is_not_there_for_others(path: Path, index: SqliteIndex) -> None:
    index.apply(at(batch(stored([1], tokens(1))), 0))
    with SqliteIndex(path, read_only=True) as reader:
        assert held(reader) == set()
        index.commit()
        assert len(held(reader)) == 1


def test_a_batch_taken_in_twice_counts_once(index: SqliteIndex) -> None:
    for _ in range(2):
        for seq, record in enumerate([stored([1], tokens(1)), stored([1], tokens(1))]):
            index.apply(at(batch(record, ts=10.0 + seq), seq))
        index.commit()
    (entry,) = index.entries()
    assert entry.references == 2


def test_a_newer_life_voids_the_older(index: SqliteIndex) -> None:
    for seq in range(5):
        index.apply(at(batch(stored([seq], tokens(seq)), ts=10.0 + seq), seq))
    index.apply(at(batch(stored([77], tokens(7)), ts=100.0), 0))
    assert [entry.block_hash for entry in index.entries()] == [77]


def test_positions_are_committed_with_the_entries(path: Path, index: SqliteIndex) -> None:
    index.apply(at(batch(stored([1], tokens(1)), ts=10.0), 3))
    index.apply(Undecodable(WireBatch(0, "pod-a", 0, b"", 4, b"junk"), "junk"))
    index.commit()
    index.apply(at(batch(stored([2], tokens(2)), ts=20.0), 5))
    with SqliteIndex(path, read_only=True) as reader:
        assert reader.positions()["pod-a", 0].seq == 4
        assert len(held(reader)) == 1


def test_a_purge_by_another_process_is_seen(path: Path, index: SqliteIndex) -> None:
    index.apply(at(batch(stored([1, 2], tokens(1, 2)), ts=10.0), 0))
    index.commit()
    with SqliteIndex(path) as other:
        assert other.purge("pod-a", before=10.5) == 2
    index.apply(at(batch(stored([3], tokens(3), parent=2), ts=20.0), 1))
    index.commit()
    (entry,) = index.entries()
    assert not entry.anchored  # its parent is not known any more
    assert index.purge("pod-a", 1) == 0
    assert index.purge("pod-a", 0, before=5.0) == 0
    assert index.purge("pod-a") == 1


def test_two_writers_at_once_take_turns(path: Path) -> None:
    def write(pod: str) -> None:
        with SqliteIndex(path) as index:
            for seq in range(60):
                index.apply(at(batch(stored([seq], tokens(seq)), pod=pod, ts=10.0 + seq), seq))
                index.commit()

    SqliteIndex(path).close()
    writers = [threading.Thread(target=write, args=(f"pod-{n}",)) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    with SqliteIndex(path, read_only=True) as index:
        assert [stream.entries for stream in index.summary().streams] == [60, 60, 60]


WRITER = """
import sys
from kvctl.events import Batch, BlockStored, EventBatch, WireBatch
from kvctl.index import SqliteIndex
index = SqliteIndex(sys.argv[1])
last = index.positions().get(("pod-a", 0))
seq = 0 if last is None else last.seq + 1
print("ready", flush=True)
while True:
    event = BlockStored([seq], None, [seq, 1, 2, 3], 4)
    wire = WireBatch(0, "pod-a", 0, b"", seq, b"")
    index.apply(Batch(wire, EventBatch(1000.0 + seq, [event])))
    if seq % 7 == 0:
        index.commit()
        print(seq, flush=True)
    seq += 1
"""


def test_a_kill_at_any_moment_leaves_entries_and_position_in_step(path: Path) -> None:
    committed = -1
    for round_number in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for _ in range(round_number * 3 + 1):
            committed = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        with SqliteIndex(path, read_only=True) as index:
            last = index.positions()["pod-a", 0].seq
            assert last >= committed
            assert sorted(entry.block_hash for entry in index.entries()) == list(range(last + 1))


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(KvctlError, match=r"nowhere/x.sqlite: unable .* \(is its folder there"):
        SqliteIndex(tmp_path / "nowhere" / "x.sqlite")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (
            b"this is text, and long enough to be looked at as a database header" * 20,
            "not a database",
        ),
        ("other", "no index of kvctl"),
        ("99", "install a newer kvctl"),
        ("1", "builds it anew"),
    ],
)
@pytest.mark.parametrize("read_only", [True, False])
def test_a_file_that_is_something_else_is_left_alone(
    path: Path, content: bytes | str, complaint: str, read_only: bool
) -> None:
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "other":
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE mine (x)")
        other.close()
    else:
        SqliteIndex(path).close()
        with sqlite3.connect(path) as newer:
            newer.execute(f"PRAGMA user_version = {content}")
        newer.close()
    before = path.read_bytes()
    with pytest.raises(KvctlError) as caught:
        SqliteIndex(path, read_only=read_only)
    assert complaint in str(caught.value)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


def test_an_index_that_is_not_there_is_not_made_to_be_read(path: Path) -> None:
    with pytest.raises(KvctlError, match="there is no index"):
        SqliteIndex(path, read_only=True)
    assert not path.exists()


def test_an_index_held_for_too_long_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvctl.index.sqlitedb.file.BUSY_S", 0.2)
    with SqliteIndex(path) as holder, SqliteIndex(path) as other:
        holder.apply(at(batch(stored([1], tokens(1))), 0))
        with pytest.raises(KvctlError, match="locked"):
            other.apply(at(batch(stored([1], tokens(1)), pod="pod-b"), 0))
        holder.commit()
        other.apply(at(batch(stored([1], tokens(1)), pod="pod-b"), 0))


def test_where_nothing_can_be_written_the_old_state_stays(path: Path) -> None:
    with SqliteIndex(path) as index:
        index.apply(at(batch(stored([1], tokens(1)), ts=10.0), 0))
        index.commit()
        index._db.execute("PRAGMA max_page_count = 8")  # a disk that is full
        many = list(range(1, 3000))
        with pytest.raises(KvctlError, match="full"):
            index.apply(at(batch(stored(many, tokens(*many)), ts=11.0), 1))
    with SqliteIndex(path, read_only=True) as again:
        assert [entry.block_hash for entry in again.entries()] == [1]
        assert again.positions()["pod-a", 0].seq == 0


def test_the_tables_are_readable_with_sqlite_alone(path: Path) -> None:
    with SqliteIndex(path) as index:
        index.apply(at(batch(stored([b"\xab" * 32], tokens(1), lora_name="ad1"), ts=10.0), 0))
    with sqlite3.connect(path) as plain:
        row = plain.execute(
            "SELECT pod, rank, medium, block_hash, lora, copies FROM entries "
            "JOIN streams ON streams.id = stream"
        ).fetchone()
    plain.close()
    assert row == ("pod-a", 0, "GPU", "ab" * 32, "ad1", 1)


def test_decoded_records_of_a_recording_need_no_order_of_ours(path: Path) -> None:
    with SqliteIndex(path) as index:
        for wire in wire_batches("restart"):
            index.apply(decode_record(wire))
        assert index.entries_in("pod-b") == 7
