"""Where a replay stops."""

from __future__ import annotations

import pytest

from kvctl.errors import UsageError
from kvctl.events import Batch, EventBatch, Gap, Note, Restart, Undecodable, WireBatch
from kvctl.operate.until import Until, parse_until


def batch(seq: int, ts: float) -> Batch:
    return Batch(WireBatch(int(ts * 1e9), "pod-a", 0, b"", seq, b""), EventBatch(ts, []))


def test_a_small_number_is_a_seq() -> None:
    until = parse_until("61")
    assert until == Until(seq=61)
    assert until.admits(batch(61, 5e9))
    assert not until.admits(batch(62, 0.0))


@pytest.mark.parametrize(
    "text",
    [
        "1796108653.5",
        "2026-12-01T07:04:13.5+00:00",
        "2026-12-01T07:04:13.5Z",
        "2026-12-01T07:04:13.5",
        "2026-12-01 08:04:13.5+01:00",
    ],
)
def test_a_moment_can_be_written_in_many_ways(text: str) -> None:
    until = parse_until(text)
    assert until.time == 1796108653.5
    assert until.admits(batch(10**6, until.time))
    assert not until.admits(batch(0, until.time + 0.001))


def test_a_date_alone_is_its_midnight_in_utc() -> None:
    assert parse_until("2026-12-01").time == 1796083200.0


@pytest.mark.parametrize("text", ["", "soon", "-5", "12.5", "1e3", "2026-13-01", "nan"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="neither a seq nor a time"):
        parse_until(text)


def test_marks_count_where_their_seq_or_time_lies_before_the_stop() -> None:
    gap = Gap(2_000_000_000, "pod-a", 0, 5, 9, False)
    restart = Restart(2_000_000_000, "pod-a", 0, 4, "seq went back")
    broken = Undecodable(WireBatch(2_000_000_000, "pod-a", 0, b"", 5, b"x"), "junk")
    note = Note(2_000_000_000, "pod-a", None, "hello")
    assert Until(seq=5).admits(gap)
    assert not Until(seq=4).admits(gap)
    assert Until(seq=5).admits(broken)
    assert not Until(seq=4).admits(broken)
    assert Until(seq=0).admits(restart)
    for record in (gap, restart, broken):
        assert Until(time=2.0).admits(record)
        assert not Until(time=1.9).admits(record)
    assert Until(time=0.0).admits(note)
