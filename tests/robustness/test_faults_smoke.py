"""The fault run, short: the long one is `tests/robustness/faults.py`."""

from __future__ import annotations

from faults import RATES, run


def test_under_faults_the_index_ends_as_the_engines_caches() -> None:
    outcome = run(5.0, 4, seed=7, rates=RATES)
    assert outcome.wrong == {}
    assert outcome.operations["completion"] > 100
    assert set(outcome.faults) >= {"dropped", "duplicated", "delayed"}
    assert outcome.recovered
    assert outcome.gaps
    assert outcome.entries
