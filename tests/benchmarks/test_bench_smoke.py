"""The benchmark script runs, and tells what it promises to tell; no time is judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("bench_index.py")
BLOCKS = 2_000
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


def run(*arguments: str) -> str:
    command = [sys.executable, str(SCRIPT), "--blocks", str(BLOCKS), "--runs", "1", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return dict(json.loads(run("--json")))


def test_the_benchmark_tells_its_workload_as_it_was(told: dict[str, Any]) -> None:
    assert told["stored"] >= BLOCKS
    assert told["entries"] == told["stored"] - told["removed"]
    assert told["runs"] == 1


def test_every_form_and_hash_is_measured(told: dict[str, Any]) -> None:
    assert {(row["form"], row["hashes"]) for row in told["ingest"]} == {
        (form, hashes) for form in ("array", "map") for hashes in ("int", "bytes")
    }
    rates = ("blocks_per_s", "names_blocks_per_s", "decode_blocks_per_s")
    assert all(row[rate] > 0 for row in told["ingest"] for rate in rates)


def test_match_purge_memory_and_growth_have_numbers(told: dict[str, Any]) -> None:
    assert told["match_us_per_block"] > 0
    assert told["purge_us"] > 0
    assert set(told["bytes_per_entry"]) == {
        "int",
        "bytes",
        "int_after_match",
        "bytes_after_match",
        "names_int",
        "names_bytes",
    }
    assert [row["blocks"] for row in told["growth"]] == [told["stored"]]


def test_the_peers_are_measured_or_a_reason_is_told(told: dict[str, Any]) -> None:
    if told["peers_skipped"] is None:
        assert told["radix_tree"]["blocks_per_s"] > 0
        assert told["indexer"]["blocks_per_s"] > 0
        assert told["ratios"]["ingest_to_indexer"] > 0
    else:
        assert told["radix_tree"] is told["indexer"] is None


def test_without_json_it_is_a_table() -> None:
    table = run("--no-peers")
    assert "map, int" in table
    assert "peers skipped: --no-peers" in table
