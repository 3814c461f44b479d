"""`tail --index`, `replay --save` and `kvctl index` as a user runs them."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest
from recordings import wire_batches

from kvctl.sim import SimConfig, SimPod

sys.path.insert(0, str(Path(__file__).parents[1] / "operate"))

from driving import complete, fault, spec


@pytest.fixture
def pod() -> Iterator[SimPod]:
    with SimPod(SimConfig(blocks=256)) as pod:
        yield pod


def prompt(number: int, blocks: int = 2) -> list[int]:
    return [number * 1000 + at for at in range(16 * blocks)]


def truth(pod: SimPod) -> set[str]:
    return {str(block_hash) for block_hash, _copies in pod.engine.cache()[0]["blocks"]}


def held(kvctl, path: Path) -> set[str]:
    result = kvctl("index", "show", "--index", path, "--blocks", "-o", "jsonl")
    assert result.code == 0
    return {each["block_hash"] for each in result.objects}


def follow(start, kvctl, pod: SimPod, path: Path, events: int):
    tail = start("tail", "--pod", spec(pod, api="none"), "--index", path)
    tail.wait_until(lambda: len(tail.out.splitlines()) >= events)
    return tail


def test_a_saved_replay_shows_as_it_did(kvctl, tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    saved = kvctl("replay", "demo:fleet", "--save", path, "-o", "json")
    assert f"{path}: 124 entries kept" in saved.err
    shown = kvctl("index", "show", "--index", f"sqlite:{path}", "-o", "json").json
    assert shown == saved.json["index"]
    assert kvctl("index", "show", "--index", "capture:demo:fleet", "-o", "json").json == shown
    again = kvctl("replay", "demo:fleet", "--save", path)
    assert "124 entries kept" in again.err
    table = kvctl("index", "show", "--index", path).out
    assert "106 distinct blocks in 124 entries" in table
    one = kvctl("index", "show", "--index", path, "--pod", "pod-b", "-o", "json").json
    assert list(one["pods"]) == ["pod-b"]


def test_a_saved_replay_goes_up_to_where_it_is_told(kvctl, tmp_path: Path) -> None:
    kvctl("replay", "demo:warm", "--save", tmp_path / "x", "--until", "0")
    shown = kvctl("index", "show", "--index", tmp_path / "x", "-o", "json").json
    assert shown["entries"] == 10
    refused = kvctl("replay", "demo:warm", "--save", tmp_path / "y", "--policy", "noop")
    assert refused.code == 2


def test_match_asks_the_index(kvctl, tmp_path: Path) -> None:
    kvctl("replay", "demo:warm", "--save", tmp_path / "x")
    tokens = msgpack.unpackb(wire_batches("warm")[0].payload)[1][0]["token_ids"]
    (tmp_path / "prompt.json").write_text(json.dumps(tokens[:64] + [1] * 32))
    for index in (tmp_path / "x", "capture:demo:warm"):
        found = kvctl("index", "match", tmp_path / "prompt.json", "--index", index, "-o", "json")
        assert found.json["prompt_blocks"] == 3
        assert found.json["pods"]["pod-a"]["blocks"] == 2
        assert found.json["chosen"] == "pod-a"
    assert (
        "holds 2 of 3 blocks"
        in kvctl("index", "match", tmp_path / "prompt.json", "--index", index).out
    )


def test_blocks_can_be_chosen(kvctl, tmp_path: Path) -> None:
    capture = Path(__file__).parents[1] / "data" / "captures" / "lora.jsonl"
    kvctl("replay", capture, "--save", tmp_path / "x", "--until", "4")

    def count(*options: str) -> int:
        return len(
            kvctl(
                "index", "show", "--index", tmp_path / "x", "--blocks", "-o", "json", *options
            ).json
        )

    assert count() == 13
    assert count("--lora", "ad1") == 7
    assert count("--lora", "") == 3
    assert count("--medium", "cpu") == 0
    assert count("--model", "tiny") == 13
    assert count("--model", "other") == 0
    assert count("--pod", "pod-z") == 0
    assert count("--older-than", "1") == 13
    assert count("--older-than", "1e10") == 0
    lines = kvctl("index", "show", "--index", tmp_path / "x", "--blocks").out.splitlines()
    assert len(lines) == 14
    assert lines[0].split()[:2] == ["POD", "RANK"]


def test_a_stopped_tail_goes_on_where_it_was(start, kvctl, pod, tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    complete(pod, prompt(1))
    tail = follow(start, kvctl, pod, path, 1)
    complete(pod, prompt(2))
    tail.wait_until(lambda: len(tail.out.splitlines()) == 2)
    assert tail.interrupt() == 130
    assert f"{path}: pod-a holds 4 entries" in tail.err
    complete(pod, prompt(3))
    again = follow(start, kvctl, pod, path, 1)
    assert [json.loads(line)["seq"] for line in again.out.splitlines()] == [2]
    again.interrupt()
    assert held(kvctl, path) == truth(pod)


def test_a_killed_tail_goes_on_where_it_had_committed(start, kvctl, pod, tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    number = 0
    for _ in range(4):
        complete(pod, prompt(number := number + 1))
        tail = follow(start, kvctl, pod, path, 1)
        for _ in range(10):
            complete(pod, prompt(number := number + 1))
        tail.process.send_signal(signal.SIGKILL)
        tail.process.wait()
    complete(pod, prompt(number + 1))
    last = follow(start, kvctl, pod, path, 1)
    last.interrupt()
    assert held(kvctl, path) == truth(pod)


def test_a_restart_while_nobody_listened_is_noticed(start, kvctl, pod, tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    for number in range(3):
        complete(pod, prompt(number))
    follow(start, kvctl, pod, path, 3).interrupt()
    fault(pod, "restart")
    for number in range(10, 16):  # the seq is higher than the last one seen
        complete(pod, prompt(number))
    tail = follow(start, kvctl, pod, path, 7)
    assert json.loads(tail.out.splitlines()[0])["type"] == "Restart"
    tail.interrupt()
    assert held(kvctl, path) == truth(pod)


@pytest.mark.parametrize("command", ["tail", "show"])
def test_an_index_that_is_something_else_is_refused_in_one_line(
    kvctl, pod, tmp_path: Path, command: str
) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not an index, but long enough to be taken for the head of a database\n" * 50)
    before = path.read_bytes()
    if command == "tail":
        result = kvctl("tail", "--pod", spec(pod, api="none"), "--index", path, "--timeout", "1")
    else:
        result = kvctl("index", "show", "--index", path)
    assert result.code == 1
    assert len(result.err.splitlines()) == 1
    assert "not a database" in result.err
    assert path.read_bytes() == before


def test_an_index_nobody_made_and_urls_of_no_kind_are_refused(kvctl, tmp_path: Path) -> None:
    missing = kvctl("index", "show", "--index", tmp_path / "none")
    assert missing.code == 1
    assert "there is no index" in missing.err
    for command in (
        ["index", "show", "--index", "mysql://x"],
        ["replay", "demo:warm", "--save", "mysql://x"],
    ):
        result = kvctl(*command)
        assert result.code == 2
        assert "mysql://x" in result.err


def test_equal_indexes_do_not_differ_whatever_their_kind(kvctl, tmp_path: Path) -> None:
    kvctl("replay", "demo:hybrid", "--save", tmp_path / "x")
    result = kvctl("index", "diff", tmp_path / "x", "capture:demo:hybrid", "-o", "json")
    assert result.code == 0
    assert result.json == {"pods": [{"pod": "pod-c", "only_a": 0, "only_b": 0, "both": 4}]}


def test_what_only_one_index_has_is_told_by_pod_and_by_block(kvctl, tmp_path: Path) -> None:
    kvctl("replay", "demo:warm", "--save", tmp_path / "early", "--until", "0")
    kvctl("replay", "demo:warm", "--save", tmp_path / "late")
    result = kvctl("index", "diff", tmp_path / "early", tmp_path / "late", "-o", "json", "--blocks")
    assert result.code == 3
    assert result.json["pods"] == [{"pod": "pod-a", "only_a": 0, "only_b": 2, "both": 10}]
    events = [msgpack.unpackb(wire.payload)[1][0] for wire in wire_batches("warm")[1:3]]
    assert {each["block_hash"] for each in result.json["differences"]} == {
        str(event["block_hashes"][0]) for event in events
    }
    assert {each["only_in"] for each in result.json["differences"]} == {"b"}
    lines = kvctl("index", "diff", tmp_path / "late", tmp_path / "early", "--blocks", "-o", "jsonl")
    assert [each["only_in"] for each in lines.objects] == ["a", "a"]
    table = kvctl("index", "diff", tmp_path / "late", tmp_path / "early")
    assert table.out.splitlines()[1].split() == ["pod-a", "2", "0", "10"]
    assert (
        len(
            kvctl(
                "index", "diff", tmp_path / "late", tmp_path / "early", "--blocks"
            ).out.splitlines()
        )
        == 3
    )


def test_the_same_block_under_another_name_is_the_same(kvctl, tmp_path: Path) -> None:
    """restart.jsonl names blocks by bytes in its second life; the index goes by their content."""

    def capture(name: str, block_hash: int | bytes) -> str:
        event = {
            "type": "BlockStored", "block_hashes": [block_hash], "parent_block_hash": None,
            "token_ids": [1, 2], "block_size": 2, "lora_id": None, "medium": "GPU",
            "lora_name": None,
        }  # fmt: skip
        record = [10**18, "pod-a", 0, "kv@pod-a@tiny", 0, msgpack.packb([1.0, [event], 0])]
        (tmp_path / name).write_bytes(
            msgpack.packb({"format": "kvcap", "version": 1}) + msgpack.packb(record)
        )
        return f"capture:{tmp_path / name}"

    result = kvctl("index", "diff", capture("ints", 7), capture("bytes", b"x" * 32))
    assert result.code == 0


@pytest.mark.dynamo
def test_a_dynamo_indexer_is_compared_with_kvctls_own(
    kvctl, pod: SimPod, dynamo_indexer, tmp_path: Path
) -> None:
    complete(pod, prompt(1))
    path = tmp_path / "x.sqlite"
    assert kvctl("tail", "--pod", spec(pod, api="none"), "--index", path, "--count", "1").code == 0
    dynamo_indexer.register(1, pod.events[0], pod.replay[0])
    for number in range(50):
        complete(pod, prompt(2 + number))
        if dynamo_indexer.entries() >= 4:
            break
    told = kvctl("config", "set-pod", spec(pod), "--context", "sim")
    assert told.code == 0
    shown = kvctl("index", "show", "--index", dynamo_indexer.url, "--context", "sim", "-o", "json")
    assert list(shown.json["pods"]) == ["pod-a"]
    found = kvctl("index", "diff", path, dynamo_indexer.url, "--context", "sim", "-o", "json")
    assert found.code == 3
    (row,) = found.json["pods"]
    assert (row["only_a"], row["both"]) == (0, 2)
    assert row["only_b"] >= 2
