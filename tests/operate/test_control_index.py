"""reset and sleep against an index that somebody else feeds."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from driving import complete, drive, fleet_pod, step

from kvctl.index import SqliteIndex
from kvctl.index.redisdb import LlmdIndex, parse_url
from kvctl.operate.podnames import pod_names
from kvctl.operate.resync import resync
from kvctl.operate.sources import stream_sources
from kvctl.operate.target import StoredTarget
from kvctl.operate.verdicts import Verdict
from kvctl.sim import SimConfig, SimPod
from kvctl.stream import StreamReader


@pytest.fixture
def pod() -> Iterator[SimPod]:
    with SimPod(SimConfig()) as pod:
        complete(pod)
        yield pod


@pytest.fixture
def path(pod: SimPod, tmp_path: Path) -> Path:
    path = tmp_path / "x.sqlite"
    with SqliteIndex(path) as index:
        resync(index, fleet_pod(pod))
        assert index.entries_in("pod-a") == 4
    return path


def test_an_index_that_nobody_feeds_stays_stale_though_the_engine_told(
    pod: SimPod, path: Path
) -> None:
    with SqliteIndex(path) as index:
        target = StoredTarget(index, "pod-a", "x.sqlite")
        report = drive(pod, target=target, action="reset", nudge=True)
        assert report.verdict is Verdict.STALE
        assert (report.entries_before, report.entries_after) == (4, 4)
        assert "4 entries in x.sqlite" in step(report, "index").detail


def test_purge_cleans_that_index(pod: SimPod, path: Path) -> None:
    with SqliteIndex(path) as index:
        target = StoredTarget(index, "pod-a", "x.sqlite")
        report = drive(pod, target=target, action="sleep", purge=True)
        assert report.verdict is Verdict.PURGED
        assert index.entries_in("pod-a") == 0
        assert step(report, "purge").detail == "4 entries removed from x.sqlite"


def test_an_index_that_is_fed_follows_by_itself(pod: SimPod, path: Path) -> None:
    done = threading.Event()

    def feed() -> None:
        with (
            SqliteIndex(path) as index,
            StreamReader(
                list(stream_sources(fleet_pod(pod))), positions=index.positions()
            ) as reader,
        ):
            while not done.is_set():
                for record in reader.read(0.05):
                    index.apply(record)
                index.commit()

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        with SqliteIndex(path) as index:
            target = StoredTarget(index, "pod-a", "x.sqlite")
            report = drive(pod, target=target, action="reset", nudge=True)
            assert report.verdict is Verdict.VERIFIED
            assert index.entries_in("pod-a") == 0
    finally:
        done.set()
        feeder.join()


def test_a_routers_index_is_purged_of_all_the_pod_has(
    pod: SimPod, url: str, db: redis.Redis
) -> None:
    known = fleet_pod(pod)
    with LlmdIndex(parse_url(url), names=pod_names([known])) as index:
        resync(index, known)
        assert index.stored_before("pod-a", None, None) == 4
        target = StoredTarget(index, "pod-a", url)
        report = drive(pod, target=target, action="sleep")
        assert (report.verdict, report.entries_after) == (Verdict.STALE, 4)
        report = drive(pod, target=target, action="sleep", purge=True)
        assert (report.verdict, report.entries_before) == (Verdict.PURGED, 4)
    assert db.dbsize() == 0


def test_an_index_that_goes_away_meanwhile_is_in_the_report(pod: SimPod, own_server) -> None:
    known = fleet_pod(pod)
    with LlmdIndex(
        parse_url(f"redis://127.0.0.1:{own_server.port}"), names=pod_names([known]), patience=0.1
    ) as index:
        resync(index, known)
        target = StoredTarget(index, "pod-a", "redis://x")
        before = index.stored_before("pod-a", None, None)
        report = drive(pod, target=target, after_call=own_server.stop, action="sleep", purge=True)
        assert before == 4
        assert report.verdict is Verdict.STALE
        assert "the call was made, but" in step(report, "check").detail
