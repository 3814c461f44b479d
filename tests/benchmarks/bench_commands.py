"""What whole commands cost: `--help`, `replay` of small and large captures, an SQLite index.

    python tests/benchmarks/bench_commands.py [--blocks 1000000] [--runs 5] [--json]

Medians of the runs, each command beside what it is measured against: a bare typer program, the
ingest in memory of the same batches, SQLite's own bulk insert of the same rows.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))

from bench_workload import make_workload

from kvctl.capture import CaptureWriter, open_capture
from kvctl.events import decode_record
from kvctl.index import MemoryIndex, SqliteIndex
from kvctl.stream import order_capture

BARE = """
import typer
app = typer.Typer()
@app.command()
def one(name: str = "x") -> None: "One."
@app.command()
def two(name: str = "x") -> None: "Two."
app()
"""


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def command(*words: str | Path) -> float:
    line = [sys.executable, *map(str, words)]
    return timed(lambda: subprocess.run(line, check=True, capture_output=True))


def measure(blocks: int, runs: int, folder: Path) -> dict[str, float]:
    told: dict[str, float] = {}
    bare = folder / "bare.py"
    bare.write_text(BARE)
    made = make_workload(blocks)
    capture, small, path = folder / "big.kvcap", folder / "small.kvcap", folder / "x.sqlite"
    with CaptureWriter(capture) as big, CaptureWriter(small) as little:
        for number, wire in enumerate(made.wires):
            big.write(wire)
            if number < 10:
                little.write(wire)
    rows: dict[str, list[float]] = {}
    for _ in range(runs):  # side by side, so that noise meets all alike
        rows.setdefault("bare --help", []).append(command(bare, "--help"))
        rows.setdefault("kvctl --help", []).append(command("-m", "kvctl", "--help"))
        rows.setdefault("replay, 10 batches", []).append(command("-m", "kvctl", "replay", small))
        rows.setdefault("ingest in memory", []).append(timed(lambda: ingest(made.wires)))
        rows.setdefault("replay, all", []).append(command("-m", "kvctl", "replay", capture))
    told.update({name: median(times) for name, times in rows.items()})
    with SqliteIndex(path) as index:
        told["sqlite: save"] = timed(lambda: save(capture, index))
        told["sqlite: entries"] = float(index.summary().entries)
        told["sqlite: summary"] = timed(index.summary)
        told["sqlite: bulk insert"] = timed(lambda: bulk(path, folder / "bulk.sqlite"))
        pod = made.wires[0].pod
        told["sqlite: purge of one pod"] = timed(lambda: index.purge(pod))
    told["sqlite: bytes an entry"] = path.stat().st_size / max(1.0, told["sqlite: entries"])
    return told


def ingest(wires: list) -> None:
    index = MemoryIndex()
    for wire in wires:
        index.apply(decode_record(wire))


def save(capture: Path, index: SqliteIndex) -> None:
    with open_capture(capture) as reader:
        for number, record in enumerate(order_capture(reader)):
            index.apply(record)
            if number % 20_000 == 0:
                index.commit()
    index.commit()


def bulk(path: Path, into: Path) -> None:
    """The rows of the index's table, inserted at once into the same table elsewhere."""
    source, target = sqlite3.connect(path), sqlite3.connect(into, isolation_level=None)
    for (statement,) in source.execute(
        "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND tbl_name = 'entries'"
    ):
        target.execute(statement)
    rows = source.execute("SELECT * FROM entries").fetchall()
    target.execute("PRAGMA journal_mode = WAL")
    target.execute("BEGIN")
    target.executemany(f"INSERT INTO entries VALUES ({','.join('?' * len(rows[0]))})", rows)
    target.execute("COMMIT")
    source.close()
    target.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        told = measure(options.blocks, options.runs, Path(folder))
    ratios = {
        "help to bare": told["kvctl --help"] / told["bare --help"],
        "small replay to bare": told["replay, 10 batches"] / told["bare --help"],
        "replay to ingest": told["replay, all"] / told["ingest in memory"],
        "sqlite save to bulk": told["sqlite: bulk insert"] / told["sqlite: save"],
    }
    if options.json:
        print(json.dumps({"measured": told, "ratios": ratios}))
    else:
        for name, value in {**told, **ratios}.items():
            print(f"{name:28} {value:12,.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
