"""A router's index in Redis as a user meets it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import requests

from kvctl.index.redisdb.podfields import PodField
from kvctl.sim import SimConfig, SimPod

sys.path.insert(0, str(Path(__file__).parents[1] / "operate"))

from driving import PROMPT, complete, spec


@pytest.fixture
def pod() -> Iterator[SimPod]:
    with SimPod(SimConfig()) as pod:
        complete(pod)
        yield pod


@pytest.fixture
def fed(kvctl, pod: SimPod, url: str) -> str:
    """llm-d's index, fed by tail with what the pod told."""
    told = kvctl("tail", "--pod", spec(pod, api="none"), "--index", url, "--count", "1")
    assert told.code == 0
    assert f"{url}: pod-a holds 4 entries" in told.err
    return url


def test_a_fed_index_is_shown_matched_and_equal_to_kvctls_own(
    kvctl, pod, fed, tmp_path: Path
) -> None:
    shown = kvctl("index", "show", "--index", fed, "-o", "json").json
    assert shown["blocks"] == 4
    assert shown["pods"]["pod-a"]["media"] == {"GPU": 4}
    blocks = kvctl("index", "show", "--index", fed, "--blocks", "-o", "jsonl").objects
    truth = {str(name) for name, _copies in pod.engine.cache()[0]["blocks"]}
    assert {each["block_hash"] for each in blocks} == truth
    prompt = ",".join(map(str, PROMPT))
    found = kvctl("index", "match", prompt, "--model", "tiny", "--index", fed, "-o", "json").json
    assert found["pods"]["pod-a"]["blocks"] == 4
    assert found["chosen"] == "pod-a"
    path = tmp_path / "own.sqlite"
    kvctl("tail", "--pod", spec(pod, api="none"), "--index", path, "--count", "1")
    same = kvctl("index", "diff", path, fed, "-o", "json")
    assert (same.code, same.json["pods"]) == (
        0,
        [{"pod": "pod-a", "only_a": 0, "only_b": 0, "both": 4}],
    )


def test_a_difference_is_found_by_the_engines_hashes(
    kvctl, pod, fed, db: redis.Redis, tmp_path: Path
) -> None:
    path = tmp_path / "own.sqlite"
    kvctl("tail", "--pod", spec(pod, api="none"), "--index", path, "--count", "1")
    # Another pod has hashed the same blocks with a seed of its own.
    for key in db.keys("[0-9]*"):
        db.hset(key, PodField("10.9.9.9", "gpu").encode(), "")
        db.zadd(f"engine:{int(key) % 1000}", {key: 0})
    lost = db.keys("[0-9]*")[0]
    db.hdel(lost, PodField("pod-a", "gpu", group=0).encode())
    found = kvctl("index", "diff", fed, path, "-o", "json")
    assert found.code == 3
    assert found.json["pods"] == [
        {"pod": "10.9.9.9", "only_a": 4, "only_b": 0, "both": 0},
        {"pod": "pod-a", "only_a": 0, "only_b": 1, "both": 3},
    ]


def test_reconcile_purges_a_sleeping_pod_from_it(kvctl, pod, fed, db: redis.Redis) -> None:
    db.set("session:1", "x")
    requests.post(pod.api + "/sleep", timeout=10).raise_for_status()
    looked = kvctl("reconcile", "--pod", spec(pod), "--index", fed, "--dry-run", "-o", "json")
    assert looked.code == 3
    assert "rank" not in looked.json["pods"][0]
    assert db.dbsize() == 9
    done = kvctl("reconcile", "--pod", spec(pod), "--index", fed, "--yes")
    assert done.code == 0
    assert re.search(r"pod-a +- +sleeping-1 +4 +4 +purge", done.out)
    assert db.keys("*") == [b"session:1"]


def test_sleep_with_the_routers_index_purges_there(kvctl, pod, fed, db: redis.Redis) -> None:
    done = kvctl("sleep", "--pod", spec(pod), "--index", fed, "--purge", "--yes", "-o", "json")
    assert (done.code, done.json["verdict"]) == (0, "purged")
    assert done.json["entries_before"] == 4
    assert db.dbsize() == 0


def test_a_watch_outlives_a_restart_of_the_server_and_tells_its_metrics(
    kvctl, start, pod, own_server, tmp_path: Path
) -> None:
    url = f"redis://127.0.0.1:{own_server.port}"
    kvctl("tail", "--pod", spec(pod, api="none"), "--index", url, "--count", "1")
    watch = start(
        "reconcile", "--pod", spec(pod), "--index", url, "--watch", "--interval", "0.2",
        "--yes", "-o", "jsonl", "--metrics-port", "0",
    )  # fmt: skip
    watch.wait_until(lambda: "keep" in watch.out)
    port = re.search(r"metrics at http://0\.0\.0\.0:(\d+)/metrics", watch.err)[1]
    own_server.stop()
    watch.wait_until(lambda: "does not answer" in watch.err)
    own_server.start()
    requests.post(pod.api + "/sleep", timeout=10).raise_for_status()
    watch.wait_until(lambda: '"purged_entries": 4' in watch.out)
    page = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=5).text
    assert 'kvctl_reconcile_purged_entries_total{pod="pod-a"} 4.0' in page
    assert "kvctl_reconcile_failures_total 0.0" not in page
    assert watch.interrupt() == 130


def test_a_stopped_tail_goes_on_where_it_was_with_own_keys(
    kvctl, pod, url, db: redis.Redis
) -> None:
    def tail(count: int):
        return kvctl(
            "tail", "--pod", spec(pod, api="none"), "--index", url, "--own-keys",
            "--count", str(count), "-o", "jsonl",
        )  # fmt: skip

    assert [each["seq"] for each in tail(1).objects] == [0]
    complete(pod, list(range(900, 932)))
    assert [each["seq"] for each in tail(1).objects] == [1]
    positions = {json.loads(key)[0]: json.loads(value)[0] for key, value in
                 db.hgetall("kvctl:positions").items()}  # fmt: skip
    assert positions == {"pod-a": 1}


def test_a_capture_is_written_into_it_and_refusals_are_told(kvctl, url) -> None:
    saved = kvctl("replay", "demo:fleet", "--save", f"{url}?block_size=16", "-o", "json")
    assert saved.code == 0
    assert "entries kept" in saved.err
    shown = kvctl("index", "show", "--index", url, "-o", "json").json
    assert shown["entries"] > 0


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("index", "show", "--index", "redis://127.0.0.1:1"), 1, "127.0.0.1:1 does not answer"),
        (("index", "show", "--index", "nats://x"), 2, "no index 'nats://x' can be opened"),
        (("index", "show", "--index", "redis://h?layout=x"), 2, "layout=x"),
        (("replay", "demo:fleet", "--save", "redis://h?layout=kthena"), 2, "not written"),
        (("replay", "demo:fleet", "--save", "capture:x"), 2, "read only"),
        (("replay", "demo:fleet", "--save", "dynamo+http://h"), 2, "takes no entries"),
        (("reconcile", "pod-a:1", "--index", "capture:demo:fleet"), 2, "cannot be purged"),
        (("reconcile", "pod-a:1", "--own-keys"), 2, "--own-keys is for an index in Redis"),
        (("reconcile", "pod-a:1", "--metrics-port", "9"), 2, "--metrics-port goes with --watch"),
    ],
)
def test_what_cannot_be_is_one_line_and_the_documented_code(kvctl, words, code, told) -> None:
    result = kvctl(*words)
    assert result.code == code
    assert told in result.err
    assert "Traceback" not in result.err
    assert result.out == ""


def test_a_password_in_the_url_is_not_shown(kvctl) -> None:
    result = kvctl("index", "show", "--index", "redis://u:hunter2@127.0.0.1:1/0")
    assert result.code == 1
    assert "hunter2" not in result.err + result.out


def test_kthenas_index_is_shown_purged_and_not_compared_with_an_engines(
    kvctl, pod, url, db: redis.Redis
) -> None:
    db.hset("matrix:kv:block:tiny@111", mapping={"pod-a": "1700000000", "pod-b": "1700000000"})
    kthena = f"{url}?layout=kthena"
    shown = kvctl("index", "show", "--index", kthena, "-o", "json").json
    assert shown["pods"]["pod-a"]["models"] == {"tiny": 1}
    refused = kvctl("index", "diff", kthena, "capture:demo:fleet")
    assert (refused.code, "hashes of its own" in refused.err) == (2, True)
    assert kvctl("index", "match", "1,2,3", "--index", kthena).code == 1
    requests.post(pod.api + "/sleep", timeout=10).raise_for_status()
    assert kvctl("reconcile", "--pod", spec(pod), "--index", kthena, "--yes").code == 0
    assert db.hkeys("matrix:kv:block:tiny@111") == [b"pod-b"]
