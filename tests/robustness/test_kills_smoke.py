"""Kills, a few: the long run is `tests/robustness/kills.py`."""

from __future__ import annotations

from pathlib import Path

from kills import run


def test_after_kills_no_entry_is_wrong_and_the_next_tail_heals(tmp_path: Path) -> None:
    outcome = run(4, tmp_path, seed=3)
    assert outcome.wrong == []
    assert outcome.kills == 4
    assert outcome.batches_published > 100
    assert outcome.batches_in_captures
