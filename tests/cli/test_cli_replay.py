"""`kvctl replay` as a user runs it."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import msgpack
import pytest
from recordings import CAPTURES, wire_batches


def test_the_demo_shows_both_pods_in_a_table(kvctl) -> None:
    result = kvctl("replay", "demo:fleet")
    assert result.code == 0
    rows = [line.split() for line in result.out.splitlines()]
    assert rows[0] == ["POD", "RANK", "MODEL", "ENTRIES", "UNANCHORED", "MEDIA", "LORA"]
    assert rows[1] == ["pod-a", "0", "tiny", "62", "0", "GPU", "62", "-"]
    assert rows[2] == ["pod-b", "0", "tiny", "62", "0", "GPU", "62", "-"]


@pytest.mark.parametrize(
    ("name", "entries", "restarts"),
    [
        ("warm", {"pod-a": 12}, 0),
        ("restart", {"pod-b": 7}, 1),
        ("hybrid", {"pod-c": 4}, 0),
        ("dp2", {"pod-b": 4}, 0),
        ("fleet", {"pod-a": 62, "pod-b": 62}, 0),
    ],
)
def test_json_tells_what_each_pod_holds(kvctl, name: str, entries: dict, restarts: int) -> None:
    report = kvctl("replay", CAPTURES / f"{name}.jsonl", "-o", "json").json
    assert {pod: told["entries"] for pod, told in report["index"]["pods"].items()} == entries
    assert len(report["restarts"]) == restarts


def test_json_has_the_documented_shape(kvctl) -> None:
    report = kvctl("replay", "demo:dp2", "-o", "json").json
    assert set(report) == {
        "batches", "events", "blocks_stored", "gaps", "restarts", "undecodable", "index",
        "warnings", "elapsed_s", "blocks_per_s",
    }  # fmt: skip
    payloads = [msgpack.unpackb(wire.payload) for wire in wire_batches("dp2")]
    types = [event["type"] for _ts, events, _rank in payloads for event in events]
    assert report["batches"] == len(payloads)
    assert report["events"] == {
        "BlockStored": types.count("BlockStored"),
        "BlockRemoved": 0,
        "AllBlocksCleared": types.count("AllBlocksCleared"),
        "unknown": 0,
    }
    assert report["gaps"] == []
    pod = report["index"]["pods"]["pod-b"]
    assert pod["models"] == {"tiny": 4}
    assert pod["media"] == {"GPU": 4}
    assert pod["ranks"] == {"0": 2, "1": 2}


def test_a_capture_that_begins_late_has_a_gap_in_front(kvctl) -> None:
    report = kvctl("replay", "demo:fleet", "-o", "json").json
    first = {wire.pod: wire.seq for wire in reversed(wire_batches("fleet"))}
    assert {gap["pod"]: (gap["from_seq"], gap["to_seq"]) for gap in report["gaps"]} == {
        pod: (0, seq - 1) for pod, seq in first.items() if seq
    }
    assert not any(gap["recovered"] for gap in report["gaps"])


def test_several_captures_are_read_in_order(kvctl) -> None:
    parts = [CAPTURES / f"{name}.jsonl" for name in ("warm", "reset-idle", "sleep1", "evict")]
    report = kvctl("replay", *parts, "-o", "json").json
    assert report["batches"] == 4 + 1 + 3 + 12
    assert report["gaps"] == []
    # An engine of 64 blocks, one of them the null block, filled by nine prompts.
    assert 0 < report["index"]["pods"]["pod-a"]["entries"] <= 63


def test_a_capture_from_stdin(kvctl) -> None:
    report = kvctl("replay", "-", "-o", "json", stdin=(CAPTURES / "warm.jsonl").read_bytes()).json
    assert report["index"]["entries"] == 12


def test_until_a_seq_stops_each_stream_behind_it(kvctl) -> None:
    report = kvctl("replay", "demo:warm", "--until", "0", "-o", "json").json
    assert report["index"]["entries"] == 10
    assert report["batches"] == 1


def test_until_a_time_stops_there(kvctl) -> None:
    second = msgpack.unpackb(wire_batches("warm")[1].payload)[0]
    report = kvctl("replay", "demo:warm", "--until", repr(second), "-o", "json").json
    assert report["batches"] == 2


def test_the_noop_policy_keeps_what_a_clear_voids(kvctl) -> None:
    reset = CAPTURES / "reset-idle.jsonl"
    warm = CAPTURES / "warm.jsonl"
    kept = kvctl("replay", warm, reset, "--policy", "noop", "-o", "json").json
    purged = kvctl("replay", warm, reset, "-o", "json").json
    assert kept["index"]["entries"] == 12
    assert purged["index"]["entries"] == 10


def first_prompt() -> list[int]:
    return msgpack.unpackb(wire_batches("warm")[0].payload)[1][0]["token_ids"]


def test_match_tells_who_holds_a_prompt(kvctl, tmp_path: Path) -> None:
    tokens = first_prompt()[:96] + [1] * 32
    (tmp_path / "prompt.json").write_text(json.dumps(tokens))
    for given in (",".join(map(str, tokens)), str(tmp_path / "prompt.json")):
        match = kvctl("replay", "demo:warm", "--match", given, "-o", "json").json["match"]
        assert match["prompt_blocks"] == 4
        assert match["pods"]["pod-a"]["blocks"] == 3
        assert match["pods"]["pod-a"]["tokens"] == 96
        assert match["pods"]["pod-a"]["percent"] == 75
        assert match["chosen"] == "pod-a"
        assert match["why"] == "holds 3 of 4 blocks"
    table = kvctl("replay", "demo:warm", "--match", given)
    assert "pod-a     0       3   4      96      75%" in table.out


def test_match_block_follows_the_parents(kvctl) -> None:
    event = msgpack.unpackb(wire_batches("warm")[1].payload)[1][0]
    result = kvctl(
        "replay", "demo:warm", "--match-block", str(event["block_hashes"][0]), "-o", "json"
    )
    parents = msgpack.unpackb(wire_batches("warm")[0].payload)[1][0]["block_hashes"]
    depth = parents.index(event["parent_block_hash"]) + 2
    assert result.json["match"]["pods"]["pod-a"]["blocks"] == depth


def test_match_block_of_an_unknown_block_is_an_error(kvctl) -> None:
    result = kvctl("replay", "demo:warm", "--match-block", "12345")
    assert result.code == 1
    assert "no pod holds the block 12345" in result.err


def test_only_the_named_pod_is_replayed(kvctl) -> None:
    report = kvctl("replay", "demo:fleet", "--pod", "pod-b", "-o", "json").json
    assert list(report["index"]["pods"]) == ["pod-b"]
    missing = kvctl("replay", "demo:fleet", "--pod", "pod-z", "-o", "json").json
    assert "no batch of pod pod-z in the capture" in missing["warnings"]


def test_an_end_before_the_beginning_is_told(kvctl) -> None:
    report = kvctl("replay", "demo:fleet", "--until", "2020-01-01", "-o", "json").json
    assert (report["batches"], report["warnings"]) == (0, ["no batch up to --until in the capture"])
    report = kvctl("replay", "demo:fleet", "--until", "61", "-o", "json").json
    assert report["batches"]
    assert not any("--until" in warning for warning in report["warnings"])


def test_an_index_above_capacity_is_reported(kvctl) -> None:
    report = kvctl("replay", "demo:fleet", "--num-gpu-blocks", "62", "-o", "json").json
    assert sum("can hold 61" in warning for warning in report["warnings"]) == 2
    report = kvctl("replay", "demo:fleet", "--num-gpu-blocks", "64", "-o", "json").json
    assert not any("can hold" in warning for warning in report["warnings"])


def test_steps_show_what_each_batch_changed(kvctl) -> None:
    steps = kvctl("replay", "demo:warm", "--step", "-o", "jsonl").objects
    assert [(step["entries"], step["change"]) for step in steps] == [
        (10, 10),
        (11, 1),
        (12, 1),
        (12, 0),
    ]
    assert steps[0]["records"][0]["type"] == "BlockStored"
    lines = kvctl("replay", "demo:warm", "--step").out
    assert "entries 10 (+10)" in lines
    assert "entries 12 (+0)" in lines


def test_in_a_terminal_steps_wait_for_a_key(terminal) -> None:
    screen = terminal("replay", "demo:warm", "--step")
    screen.wait_for("q: quit >")
    assert "entries 10 (+10)" in screen.text
    assert "entries 11" not in screen.text
    screen.send("\n")
    screen.wait_for("entries 11 (+1)")
    assert "entries 12" not in screen.text
    screen.send("g\n")
    screen.wait_for("ENTRIES")
    assert "entries 12 (+0)" in screen.text
    assert screen.end() == 0


def test_q_ends_the_walk(terminal) -> None:
    screen = terminal("replay", "demo:warm", "--step")
    screen.wait_for("q: quit >")
    screen.send("q\n")
    assert screen.end() == 130


def test_jsonl_without_steps_is_refused(kvctl) -> None:
    result = kvctl("replay", "demo:warm", "-o", "jsonl")
    assert result.code == 2
    assert "-o jsonl goes with --step" in result.err


@pytest.mark.parametrize("columns", [80, 160])
def test_the_table_fits_the_terminal(terminal, columns: int) -> None:
    screen = terminal("replay", "demo:fleet", columns=columns)
    assert screen.end() == 0
    assert screen.lines[0].startswith("POD")
    assert all(len(line) <= columns for line in screen.lines)
    assert "warning" not in screen.lines[0]


def test_no_colour_is_written_where_it_is_not_wanted(terminal, kvctl) -> None:
    plain = terminal("replay", "demo:fleet", NO_COLOR="1")
    assert plain.end() == 0
    assert b"\x1b[3" not in plain.raw
    assert "\x1b" not in kvctl("replay", "demo:fleet").out


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "No such file"),
        (b"", "empty"),
        (b"hello, this is a text file\nof two lines\n", "not a capture"),
        (bytes(range(256)), "not a capture"),
    ],
)
def test_what_is_no_capture_is_refused_in_one_line(
    kvctl, tmp_path: Path, content: bytes | None, complaint: str
) -> None:
    path = tmp_path / "file.kvcap"
    if content is not None:
        path.write_bytes(content)
    result = kvctl("replay", path)
    assert result.code == 1
    assert result.out == ""
    (line,) = result.err.splitlines()
    assert str(path) in line
    assert complaint in line


def test_a_capture_of_a_newer_version_names_the_remedy(kvctl, tmp_path: Path) -> None:
    path = tmp_path / "new.kvcap"
    path.write_bytes(msgpack.packb({"format": "kvcap", "version": 99, "kvctl": "7.0.0"}))
    result = kvctl("replay", path)
    assert result.code == 1
    assert "version 99" in result.err
    assert len(result.err.splitlines()) == 1


def test_a_capture_cut_in_half_is_read_up_to_the_cut(kvctl, tmp_path: Path) -> None:
    whole = tmp_path / "whole.kvcap"
    assert kvctl("capture", "convert", "demo:fleet", whole).code == 0
    data = whole.read_bytes()
    (tmp_path / "cut.kvcap").write_bytes(data[: len(data) // 2])
    result = kvctl("replay", tmp_path / "cut.kvcap", "-o", "json")
    assert result.code == 0
    assert 0 < result.json["batches"] < 70
    assert any("bytes" in warning for warning in result.json["warnings"])
    assert "warning" in result.err


def test_hostile_names_cannot_reach_the_terminal(kvctl, tmp_path: Path) -> None:
    hostile = "\x1b[31mred\x07[bold]x[/bold]\u202e"
    event = {
        "type": "BlockStored", "block_hashes": [1], "parent_block_hash": None,
        "token_ids": [1, 2], "block_size": 2, "lora_id": None, "medium": hostile,
        "lora_name": hostile,
    }  # fmt: skip
    payload = msgpack.packb([1.0, [event, {"type": hostile}], 0])
    path = tmp_path / "hostile.kvcap"
    path.write_bytes(
        msgpack.packb({"format": "kvcap", "version": 1})
        + msgpack.packb([10**18, hostile, 0, hostile, 0, payload])
    )
    for arguments in (["replay", path], ["replay", path, "--step"], ["capture", "info", path]):
        result = kvctl(*arguments)
        assert result.code == 0, result.err
        for text in (result.out, result.err):
            assert not {"\x1b", "\x07", "\u202e"} & set(text)
        assert "[bold]x[/bold]" in result.out
    assert kvctl("replay", path, "-o", "json").json["index"]["entries"] == 1


def free_ports(count: int) -> int:
    """The first of ``count`` ports in a row that are free."""
    for base in range(20000, 60000, 97):
        sockets = []
        try:
            for port in range(base, base + count):
                sockets.append(socket.create_server(("127.0.0.1", port)))
            return base
        except OSError:
            continue
        finally:
            for each in sockets:
                each.close()
    raise AssertionError("no free ports")


def test_a_capture_is_published_again_and_tail_receives_it(start, kvctl, tmp_path: Path) -> None:
    base = free_ports(4)
    publisher = start(
        "replay", "demo:fleet", "--publish", f"tcp://127.0.0.1:{base}", "--speed", "0",
        "--wait", "30", "--linger", "30",
    )  # fmt: skip
    publisher.wait_until(lambda: "pod-b rank 0: events" in publisher.err)
    received = kvctl(
        "tail",
        "--pod", f"name=pod-a,events=tcp://127.0.0.1:{base},replay=tcp://127.0.0.1:{base + 1}",
        "--pod", f"name=pod-b,events=tcp://127.0.0.1:{base + 2},replay=tcp://127.0.0.1:{base + 3}",
        "--timeout", "5", "--capture", tmp_path / "again.kvcap",
    )  # fmt: skip
    assert received.code == 0
    assert publisher.interrupt() == 130
    again = kvctl("replay", tmp_path / "again.kvcap", "-o", "json").json
    original = kvctl("replay", "demo:fleet", "-o", "json").json
    assert again["events"] == original["events"]
    assert again["index"] == original["index"]


def test_publish_to_a_bad_endpoint_is_refused(kvctl) -> None:
    result = kvctl("replay", "demo:fleet", "--publish", "5557")
    assert result.code == 2
    assert "tcp://*:5557" in result.err


def test_publish_on_a_port_in_use_says_so(kvctl) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = kvctl("replay", "demo:warm", "--publish", f"tcp://127.0.0.1:{port}")
    assert result.code == 1
    assert str(port) in result.err
    assert len(result.err.splitlines()) == 1
