"""The fuzz run, short: the long one is `tests/robustness/fuzz.py`."""

from __future__ import annotations

from pathlib import Path

from fuzz import BOUND_MIB, run


def test_mutated_input_brings_no_exception_but_kvctls(tmp_path: Path) -> None:
    outcome = run(20_000, 11, tmp_path)
    assert outcome.strangers == []
    assert outcome.grown_mib < BOUND_MIB
    assert sum(outcome.inputs.values()) >= 19_000
    assert outcome.refused["batch payload"] > 1000
