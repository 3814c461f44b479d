"""Samples over time: bounded, and nothing lost of what they count."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from kvctl.report.series import MOST_BUCKETS, Sampled

MOMENTS = st.one_of(
    st.floats(1.7e9, 1.7e9 + 1),
    st.floats(1.7e9, 1.7e9 + 1e5),
    st.floats(0, 253_402_300_799.0),
)


def test_a_second_is_seen_in_milliseconds() -> None:
    sampled: Sampled[str] = Sampled()
    for number in range(500):
        sampled.at("a", 1.7e9 + number / 1024, 0).stores += 1
    assert sampled.width == 2**-10
    assert sampled.count == 500
    assert all(each is not None and each.stores == 1 for each in sampled.row("a"))


def test_a_long_span_widens_the_slices() -> None:
    sampled: Sampled[str] = Sampled()
    for second in range(100_000):
        sampled.at("a", 1.7e9 + second, 0).level(second)
    assert MOST_BUCKETS / 2 < sampled.count <= MOST_BUCKETS
    row = sampled.row("a")
    assert row[0] is not None
    assert (row[0].low, row[0].high) == (0, row[0].entries)
    assert row[-1] is not None
    assert row[-1].entries == 99_999


@given(st.lists(st.tuples(st.sampled_from("abc"), MOMENTS, st.integers(0, 100)), max_size=200))
def test_nothing_gets_lost(steps: list[tuple[str, float, int]]) -> None:
    sampled: Sampled[str] = Sampled()
    level = dict.fromkeys("abc", 0)
    for key, moment, entries in steps:
        there = sampled.at(key, moment, level[key])
        there.stores += 1
        there.batches += 1
        there.level(entries)
        level[key] = entries
    assert sampled.count <= MOST_BUCKETS
    for key in "abc":
        mine = [entries for name, _moment, entries in steps if name == key]
        row = [each for each in sampled.row(key) if each is not None]
        assert sum(each.events for each in row) == len(mine)
        assert max((each.high for each in row), default=0) == max([0, *mine])
        for _name, moment, _entries in steps:
            assert sampled.begin <= moment < sampled.end
