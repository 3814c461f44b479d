"""`kvctl tail` as a user runs it, against real sockets."""

from __future__ import annotations

import http.server
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgpack
import pytest
from recordings import wire_batches

from kvctl.events import WireBatch
from kvctl.stream import ReplayablePublisher

PATIENCE = 30.0


@pytest.fixture
def publisher() -> Iterator[ReplayablePublisher]:
    serving = ReplayablePublisher("tcp://127.0.0.1:0", "tcp://127.0.0.1:0")
    yield serving
    serving.close()


def spec(publisher: ReplayablePublisher, name: str = "pod-a") -> list[str]:
    return [
        "--pod",
        f"name={name},events={publisher.events_endpoint},replay={publisher.replay_endpoint}",
    ]


def publish(publisher: ReplayablePublisher, batches: list[WireBatch]) -> None:
    for wire in batches:
        publisher.publish(wire.topic, wire.seq, wire.payload)


def store(seq: int, *hashes: int, **fields: object) -> WireBatch:
    event = {
        "type": "BlockStored", "block_hashes": list(hashes), "parent_block_hash": None,
        "token_ids": [seq + 1, 2] * len(hashes), "block_size": 2, "lora_id": None,
        "medium": "GPU", "lora_name": None, **fields,
    }  # fmt: skip
    return WireBatch(0, "pod-a", 0, b"kv@pod-a@tiny", seq, msgpack.packb([1e9 + seq, [event], 0]))


def expected_objects(name: str) -> list[dict]:
    """What `tail -o jsonl` must print for a recording, worked out with msgpack alone."""

    def text(value: object) -> str:
        return value.hex() if isinstance(value, bytes) else str(value)

    objects = []
    for wire in wire_batches(name):
        ts, events, rank = msgpack.unpackb(wire.payload)
        for event in events:
            fields = {k: v for k, v in event.items() if v is not None}
            if event["type"] == "BlockStored":
                parent = event["parent_block_hash"]
                fields["parent_block_hash"] = None if parent is None else text(parent)
            if "block_hashes" in event:
                fields["block_hashes"] = [text(each) for each in event["block_hashes"]]
            origin = {"pod": wire.pod, "rank": rank, "topic": wire.topic.decode(), "seq": wire.seq}
            objects.append(origin | {"ts": ts} | fields)
    return objects


def test_piped_output_is_the_recording_event_by_event(kvctl, publisher) -> None:
    publish(publisher, wire_batches("warm"))
    result = kvctl("tail", *spec(publisher), "--count", "4")
    assert result.code == 0
    objects = result.objects
    assert all(abs(each.pop("recv_ts") - time.time()) < 300 for each in objects)
    assert objects == expected_objects("warm")
    assert "pod-a: 4 batches (seq 0 to 3), 4 events, 13 blocks stored" in result.err


def test_live_batches_follow_the_replayed_ones(start, publisher) -> None:
    publish(publisher, [store(0, 10), store(1, 11)])
    tail = start("tail", *spec(publisher), "--count", "4")
    tail.wait_until(lambda: len(tail.out.splitlines()) == 2)
    publish(publisher, [store(2, 12), store(3, 13)])
    assert tail.wait() == 0
    assert [json.loads(line)["seq"] for line in tail.out.splitlines()] == [0, 1, 2, 3]


def test_since_seq_begins_the_replay_there(kvctl, publisher) -> None:
    publish(publisher, [store(seq, seq) for seq in range(5)])
    result = kvctl("tail", *spec(publisher), "--since-seq", "3", "--count", "2")
    assert [each["seq"] for each in result.objects] == [3, 4]


def test_without_replay_the_missed_begin_is_a_gap(start, publisher) -> None:
    publish(publisher, [store(seq, seq) for seq in range(5)])
    tail = start("tail", *spec(publisher), "--no-replay", "--count", "1")
    assert publisher.wait_for_subscriber(PATIENCE)
    publish(publisher, [store(5, 5)])
    assert tail.wait() == 0
    gap, event = map(json.loads, tail.out.splitlines())
    assert (gap["type"], gap["from_seq"], gap["to_seq"], gap["recovered"]) == ("Gap", 0, 4, False)
    assert event["seq"] == 5
    assert "1 gap (5 batches lost)" in tail.err


@pytest.mark.parametrize(
    ("options", "seqs"),
    [
        (["--type", "BlockRemoved"], [2]),
        (["--type", "AllBlocksCleared", "--type", "BlockRemoved"], [2, 3]),
        (["--lora", "ad1"], [1]),
        (["--lora", ""], [0]),
        (["--hash", "111"], [1]),
        (["--hash", "9"], []),
        (["--medium", "cpu"], [1]),
        (["--medium", "GPU"], [0, 2]),
        (["--medium", "GPU", "--type", "BlockStored"], [0]),
    ],
)
def test_filters_choose_events(kvctl, publisher, options: list[str], seqs: list[int]) -> None:
    def other(seq: int, event: dict) -> WireBatch:
        payload = msgpack.packb([1e9, [event], 0])
        return WireBatch(0, "pod-a", 0, b"kv@pod-a@tiny", seq, payload)

    publish(
        publisher,
        [
            store(0, 2222),
            store(1, 1111, lora_name="ad1", medium="CPU"),
            other(2, {"type": "BlockRemoved", "block_hashes": [2222], "medium": "GPU"}),
            other(3, {"type": "AllBlocksCleared"}),
        ],
    )
    result = kvctl("tail", *spec(publisher), "--timeout", "3", *options)
    assert result.code == 0
    assert [each["seq"] for each in result.objects] == seqs
    assert "4 batches" in result.err


def test_a_line_a_event_in_the_terminal(terminal, publisher) -> None:
    publish(publisher, wire_batches("warm") + wire_batches("reset-idle"))
    screen = terminal("tail", *spec(publisher), "--count", "6", columns=100)
    assert screen.end() == 0
    lines = screen.lines
    assert lines[0].startswith("pod-a #0")
    assert "stored  10 blocks  320 tok  GPU  after root  89956340… " in lines[0]
    assert "CLEARED" in screen.text
    assert all(len(line) <= 100 for line in lines)
    assert b"\x1b[36m" in screen.raw


def test_every_pod_has_its_own_colour(terminal, publisher) -> None:
    with other_publisher() as second:
        publish(publisher, [store(0, 1)])
        publish(second, [store(0, 1)])
        screen = terminal(
            "tail", *spec(publisher), *spec(second, "pod-b"), "--count", "2", columns=100
        )
        assert screen.end() == 0
    colours = {
        line.split(b"pod-")[0].split(b"\n")[-1] for line in screen.raw.splitlines() if b"#0" in line
    }
    assert len(colours) == 2


@contextmanager
def other_publisher() -> Iterator[ReplayablePublisher]:
    serving = ReplayablePublisher("tcp://127.0.0.1:0", "tcp://127.0.0.1:0")
    try:
        yield serving
    finally:
        serving.close()


def test_ctrl_c_finishes_the_capture_and_sums_up(start, publisher, kvctl, tmp_path: Path) -> None:
    for number, how in enumerate((signal.SIGINT, signal.SIGTERM)):
        path = tmp_path / f"{number}.kvcap"
        publish(publisher, [store(number, number)])
        tail = start("tail", *spec(publisher), "--capture", path)
        tail.wait_until(lambda count=number + 1, tail=tail: len(tail.out.splitlines()) == count)
        assert tail.interrupt(how) == 130
        assert f"pod-a: {number + 1} batch" in tail.err
        assert f"{path}: {number + 1} record" in tail.err
        report = kvctl("replay", path, "-o", "json").json
        assert report["batches"] == number + 1
        assert report["warnings"] == []
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_killed_tail_leaves_a_capture_that_reads(start, publisher, kvctl, tmp_path) -> None:
    path = tmp_path / "killed.kvcap"
    publish(publisher, [store(seq, seq) for seq in range(20)])
    tail = start("tail", *spec(publisher), "--capture", path)
    tail.wait_until(lambda: len(tail.out.splitlines()) == 20)
    time.sleep(1.1)  # what is older than a second is flushed
    tail.process.kill()
    tail.process.wait()
    assert kvctl("replay", path, "-o", "json").json["batches"] == 20


def test_a_capture_is_never_overwritten_unasked(kvctl, publisher, tmp_path: Path) -> None:
    path = tmp_path / "once.kvcap"
    publish(publisher, [store(0, 1)])
    arguments = ["tail", *spec(publisher), "--count", "1", "--capture", path]
    assert kvctl(*arguments).code == 0
    before = path.read_bytes()
    refused = kvctl(*arguments)
    assert refused.code == 1
    assert "--force" in refused.err
    assert path.read_bytes() == before
    assert kvctl(*arguments, "--append").code == 0
    assert path.read_bytes().startswith(before)
    assert kvctl(*arguments, "--force").code == 0
    assert len(path.read_bytes()) < 2 * len(before)


def test_what_came_behind_the_last_event_shown_is_captured_all_the_same(
    kvctl, publisher, tmp_path: Path
) -> None:
    path = tmp_path / "all.kvcap"
    publish(publisher, [store(seq, seq) for seq in range(50)])
    result = kvctl("tail", *spec(publisher), "--count", "3", "--capture", path)
    assert len(result.objects) == 3
    assert kvctl("replay", path, "-o", "json").json["batches"] == 50


def test_an_undecodable_batch_is_shown_and_captured_verbatim(kvctl, publisher, tmp_path) -> None:
    path = tmp_path / "junk.kvcap"
    publish(publisher, [store(0, 1)])
    publisher.publish(b"kv@pod-a@tiny", 1, b"\xc1 junk")
    publish(publisher, [store(2, 2)])
    result = kvctl("tail", *spec(publisher), "--count", "2", "--capture", path)
    assert [each["type"] for each in result.objects] == [
        "BlockStored",
        "Undecodable",
        "BlockStored",
    ]
    assert result.objects[1]["seq"] == 1
    assert "1 undecodable" in result.err
    assert b"\xc1 junk" in path.read_bytes()


def test_a_restart_is_shown(start, publisher) -> None:
    publish(publisher, [store(seq, seq) for seq in range(3)])
    tail = start("tail", *spec(publisher), "--no-replay", "--count", "2")
    assert publisher.wait_for_subscriber(PATIENCE)
    publish(publisher, [store(7, 7)])
    tail.wait_until(lambda: len(tail.out.splitlines()) == 2)
    newer = store(0, 8)
    ts, events, rank = msgpack.unpackb(newer.payload)
    publisher.publish(newer.topic, 0, msgpack.packb([ts + 1e6, events, rank]))
    assert tail.wait() == 0
    assert [json.loads(line)["type"] for line in tail.out.splitlines()] == [
        "Gap",
        "BlockStored",
        "Restart",
        "BlockStored",
    ]


def test_stats_are_a_summary_a_second(kvctl, publisher) -> None:
    publish(publisher, wire_batches("warm"))
    result = kvctl("tail", *spec(publisher), "--stats", "--timeout", "3.5")
    assert result.code == 0
    stats = result.objects
    assert len(stats) >= 2
    assert {each["type"] for each in stats} == {"Stats"}
    assert sum(each["blocks_stored"] for each in stats) == 13
    lines = kvctl("tail", *spec(publisher), "--stats", "--timeout", "2.5", "-o", "table").out
    assert "batches/s" in lines


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_an_endpoint_nobody_serves_is_named(kvctl) -> None:
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    result = kvctl("tail", endpoint, "--connect-timeout", "1")
    assert result.code == 1
    assert f"{endpoint} is not served after 1 s" in result.err
    assert "--follow" in result.err


def test_follow_keeps_trying(start) -> None:
    port = free_port()
    tail = start(
        "tail", f"tcp://127.0.0.1:{port}", "--connect-timeout", "0.5", "--follow", "--count", "1",
        "--no-replay",
    )  # fmt: skip
    tail.wait_until(lambda: "still trying" in tail.err)
    late = ReplayablePublisher(f"tcp://127.0.0.1:{port}", None)
    try:
        assert late.wait_for_subscriber(PATIENCE)
        publish(late, [store(0, 1)])
        assert tail.wait() == 0
    finally:
        late.close()


def test_a_port_that_speaks_http_is_called_so(kvctl) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        endpoint = f"tcp://127.0.0.1:{server.server_port}"
        result = kvctl("tail", endpoint, "--no-replay", "--connect-timeout", "3")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert result.code == 1
    assert f"{endpoint} does not speak ZMQ" in result.err


def test_hostile_strings_are_escaped(kvctl, publisher) -> None:
    hostile = "\x1b[2J[red]evil\u202e"
    publish(publisher, [store(0, 1, lora_name=hostile, medium=hostile)])
    for output in ("table", "jsonl"):
        result = kvctl("tail", *spec(publisher), "--count", "1", "-o", output)
        assert not {"\x1b", "\u202e"} & set(result.out)
        assert "[red]evil" in result.out


def test_a_very_large_batch_is_taken(kvctl, publisher, tmp_path: Path) -> None:
    """16 M tokens: a payload a little under the limit of 64 MiB."""
    blocks, size = 1000, 16_000
    event = {
        "type": "BlockStored", "block_hashes": list(range(blocks)), "parent_block_hash": None,
        "token_ids": [1000] * (blocks * size), "block_size": size, "lora_id": None,
        "medium": "GPU", "lora_name": None,
    }  # fmt: skip
    publisher.publish(b"", 0, msgpack.packb([1.0, [event], 0]))
    path = tmp_path / "large.kvcap"
    result = kvctl(
        "tail", *spec(publisher), "--count", "1", "-o", "table", "--capture", path,
    )  # fmt: skip
    assert result.code == 0
    assert "1,000 blocks" in result.out
    assert path.stat().st_size > 40_000_000


def test_head_ends_tail_quietly(publisher, tmp_path: Path) -> None:
    publish(publisher, wire_batches("warm"))
    path = tmp_path / "head.kvcap"
    arguments = " ".join([*spec(publisher), "--capture", str(path)])
    done = subprocess.run(
        f"{sys.executable} -m kvctl tail {arguments} | head -n 1",
        shell=True, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    # head has gone, and no further event comes: tail ends all the same.
    assert json.loads(done.stdout)["seq"] == 0
    assert "Traceback" not in done.stderr
    assert "record" in done.stderr
    assert path.stat().st_size > 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["tail"], "no pod"),
        (["tail", "pod-z"], "pod-z"),
        (["tail", "--pod", "name=a,evnts=tcp://h:1"], "evnts"),
        (["tail", "--pod", "name=a,events=ftp://h:1"], "ftp"),
        (["tail", "tcp://h:1", "-o", "json"], "json"),
        (["tail", "tcp://h:1", "--type", "Nothing"], "Nothing"),
        (["tail", "tcp://h:1", "--count", "0"], "count"),
    ],
)
def test_bad_arguments_are_usage_errors_in_one_line(kvctl, arguments, complaint) -> None:
    result = kvctl(*arguments)
    assert result.code == 2
    assert len(result.err.splitlines()) == 1
    assert complaint in result.err


def test_an_address_in_use_is_named_once(kvctl) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        pod = f"name=pod-a,events=tcp://127.0.0.1:{port},bind=true,replay=none,api=none"
        result = kvctl("tail", "--pod", pod, "--timeout", "1")
    assert result.code == 1
    assert f"cannot bind tcp://127.0.0.1:{port}: Address already in use (expected" in result.err
