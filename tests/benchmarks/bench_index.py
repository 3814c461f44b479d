"""How fast the index in memory is, beside its peers: `python tests/benchmarks/bench_index.py`.

A made-up fleet of 8 pods (`bench_workload`) publishes a million blocks. Everything is measured
once per round, round by round, so that a noisy machine is noisy for all; the medians are printed.
Peers (`pip install 'kvctl[bench]'`): Dynamo's RadixTree, fed with ready-made JSON in this process,
and Dynamo's standalone indexer, fed with the same batches over ZMQ, until it has applied the last.
Memory is how much a fresh process grows. Linux only.

kvctl has two indexes: `MemoryIndex`, by content, which answers matches; and `NameIndex` ("names"),
by the engines' block hashes, which counts and takes no tokens.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import bench_peers
from bench_rss import growth, write_feed
from bench_workload import HASHES, PODS, WIRE_FORMS, Workload, make_workload
from msgspec import Struct
from msgspec.msgpack import Decoder

from kvctl.events import AllBlocksCleared, BlockRemoved, BlockStored, WireBatch, decode_record
from kvctl.index import MemoryIndex, NameIndex, Prompt

SIZES = (10_000, 100_000, 1_000_000)
HUGE = 10_000_000
_PURGED = PODS[3]


class _ArrayStored(BlockStored, tag="BlockStored", array_like=True, frozen=True, gc=False):
    pass


class _ArrayRemoved(BlockRemoved, tag="BlockRemoved", array_like=True, frozen=True, gc=False):
    pass


class _Maps(Struct, array_like=True, gc=False):
    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


class _Arrays(Struct, array_like=True, gc=False):
    ts: float
    events: list[_ArrayStored | _ArrayRemoved]
    data_parallel_rank: int | None = None


class Rounds:
    """Values by name, one of each a round."""

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = {}

    def note(self, name: str, value: float) -> None:
        self._values.setdefault(name, []).append(value)

    def median(self, name: str) -> float | None:
        values = self._values.get(name)
        return statistics.median(values) if values else None


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    gc.collect()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def seconds_warm(work: Callable[[], object]) -> float:
    """How long a second call takes: the first brings the prompts into the processor's caches."""
    gc.collect()
    work()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def ingest(wires: Sequence[WireBatch]) -> MemoryIndex:
    """Wire bytes to an index."""
    index = MemoryIndex()
    for wire in wires:
        index.apply(decode_record(wire))
    return index


def ingest_names(wires: Sequence[WireBatch]) -> NameIndex:
    """Wire bytes to an index of names."""
    index = NameIndex()
    for wire in wires:
        index.apply(decode_record(wire, tokens=False))
    return index


def decode_only(wires: Sequence[WireBatch], form: str) -> None:
    """What msgspec takes for the same bytes, typed, with nothing checked behind it."""
    decode: Callable[[bytes], object] = Decoder(_Maps if form == "map" else _Arrays).decode
    for wire in wires:
        decode(wire.payload)


def measure(blocks: int, runs: int, peers: bool) -> dict[str, Any]:
    """The document that `--json` prints, without `growth`."""
    rounds = Rounds()
    combinations = [(form, hashes) for form in WIRE_FORMS for hashes in HASHES]
    for form, hashes in combinations:
        work = make_workload(blocks, form=form, hashes=hashes)
        with_peers = peers and hashes == "int"  # Dynamo takes no 32-byte hashes
        radix = list(bench_peers.radix_events(work.wires)) if with_peers and form == "map" else []
        gc.collect()
        gc.freeze()  # the batches are not the index's: what it costs to look at them is not either
        for _ in range(runs):
            _round(rounds, work, form, hashes)
            if with_peers:
                _round_of_indexer(rounds, work, form)
            if radix:
                _round_of_radix_tree(rounds, work, radix)
        gc.unfreeze()
        if (form, hashes) == ("map", "int"):
            _memory(rounds, work, radix, "memory")
        elif form == "map":
            _memory(rounds, work, [], "memory bytes")
    return _document(rounds, work, combinations)


def measure_growth(blocks: int, runs: int) -> dict[str, Any]:
    """How ingest, match, purge and memory are at one size."""
    rounds = Rounds()
    work = make_workload(blocks, form="map")
    gc.collect()
    gc.freeze()
    for _ in range(runs):
        _round(rounds, work, "map", "int")
    gc.unfreeze()
    _memory(rounds, work, [], "memory")
    return {
        "blocks": work.stored,
        "blocks_per_s": _rate(work, rounds.median("ingest map int")),
        "match_us_per_block": _micro(rounds.median("match")),
        "purge_us": _micro(rounds.median("purge")),
        "bytes_per_entry": _rounded(rounds.median("memory")),
    }


def _round(rounds: Rounds, work: Workload, form: str, hashes: str) -> None:
    rounds.note(f"decode {form} {hashes}", seconds(lambda: decode_only(work.wires, form)))
    kept: list[MemoryIndex] = []
    rounds.note(f"ingest {form} {hashes}", seconds(lambda: kept.append(ingest(work.wires))))
    rounds.note(f"names {form} {hashes}", seconds(lambda: ingest_names(work.wires)))
    if (form, hashes) == ("map", "int"):
        index = kept.pop()
        asked = [Prompt(prompt) for prompt in work.prompts]
        rounds.note("first match", seconds(lambda: index.match(asked[0])))
        took = seconds_warm(lambda: [index.match(prompt) for prompt in asked])
        rounds.note("match", took / work.prompt_blocks)
        rounds.note("purge", seconds(lambda: index.purge(_PURGED)))


def _round_of_radix_tree(
    rounds: Rounds, work: Workload, events: Sequence[tuple[int, bytes]]
) -> None:
    tree = bench_peers.new_radix_tree()

    def apply() -> None:
        for worker, event in events:
            tree.apply_event(worker, event)

    rounds.note("radix ingest", seconds(apply))
    asked = [list(prompt) for prompt in work.prompts]
    took = seconds_warm(lambda: [bench_peers.radix_match(tree, prompt) for prompt in asked])
    rounds.note("radix match", took / work.prompt_blocks)
    rounds.note("radix purge", seconds(lambda: tree.remove_worker(PODS.index(_PURGED))))


def _round_of_indexer(rounds: Rounds, work: Workload, form: str) -> None:
    with bench_peers.running_indexer() as indexer:
        before = indexer.resident()
        rounds.note(f"indexer ingest {form}", indexer.take_in(work.wires, form))
        rounds.note("indexer memory", (indexer.resident() - before) / work.entries)
        rounds.note("indexer purge", indexer.forget(_PURGED))


def _memory(rounds: Rounds, work: Workload, radix: Sequence[tuple[int, bytes]], name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        feed = Path(folder) / "feed"
        write_feed(feed, work.wires)
        grown = growth("kvctl", feed)
        rounds.note(name, grown["bytes"] / work.entries)
        rounds.note(f"{name} after match", grown["bytes_after_match"] / work.entries)
        rounds.note(f"{name} of names", growth("kvctl-names", feed)["bytes"] / work.entries)
        if radix:
            write_feed(feed, radix)
            rounds.note("radix memory", growth("radix-tree", feed)["bytes"] / work.entries)


def _document(
    rounds: Rounds, work: Workload, combinations: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    median = rounds.median
    rows = [
        {
            "form": form,
            "hashes": hashes,
            "blocks_per_s": _rate(work, median(f"ingest {form} {hashes}")),
            "names_blocks_per_s": _rate(work, median(f"names {form} {hashes}")),
            "decode_blocks_per_s": _rate(work, median(f"decode {form} {hashes}")),
            "indexer_blocks_per_s": _rate(work, median(f"indexer ingest {form}"))
            if hashes == "int"
            else None,
        }
        for form, hashes in combinations
    ]
    ours, names = median("ingest map int"), median("names map int")
    return {
        "machine": {
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 2),
        },
        "stored": work.stored,
        "removed": work.removed,
        "entries": work.entries,
        "ingest": rows,
        "match_us_per_block": _micro(median("match")),
        "first_match_s": _rounded(median("first match"), 4),
        "purge_us": _micro(median("purge")),
        "bytes_per_entry": {
            "int": _rounded(median("memory")),
            "bytes": _rounded(median("memory bytes")),
            "int_after_match": _rounded(median("memory after match")),
            "bytes_after_match": _rounded(median("memory bytes after match")),
            "names_int": _rounded(median("memory of names")),
            "names_bytes": _rounded(median("memory bytes of names")),
        },
        "radix_tree": None
        if median("radix ingest") is None
        else {
            "blocks_per_s": _rate(work, median("radix ingest")),
            "match_us_per_block": _micro(median("radix match")),
            "purge_us": _micro(median("radix purge")),
            "bytes_per_entry": _rounded(median("radix memory")),
        },
        "indexer": None
        if median("indexer ingest map") is None
        else {
            "blocks_per_s": _rate(work, median("indexer ingest map")),
            "purge_us": _micro(median("indexer purge")),
            "bytes_per_entry": _rounded(median("indexer memory")),
        },
        "ratios": {
            "ingest_to_decode": _ratio(median("decode map int"), ours),
            "ingest_to_radix_tree": _ratio(median("radix ingest"), ours),
            "ingest_to_indexer": _ratio(median("indexer ingest map"), ours),
            "names_to_decode": _ratio(median("decode map int"), names),
            "names_to_radix_tree": _ratio(median("radix ingest"), names),
            "names_to_indexer": _ratio(median("indexer ingest map"), names),
            "match_time_to_radix_tree": _ratio(median("match"), median("radix match")),
            "purge_time_to_radix_tree": _ratio(median("purge"), median("radix purge")),
        },
    }


def _rate(work: Workload, took: float | None) -> int | None:
    return None if took is None else round(work.stored / took)


def _micro(value: float | None) -> float | None:
    return None if value is None else round(value * 1e6, 3)


def _rounded(value: float | None, digits: int = 1) -> float | None:
    return None if value is None else round(value, digits)


def _ratio(value: float | None, other: float | None) -> float | None:
    return None if value is None or other is None else round(value / other, 3)


def _print(told: dict[str, Any]) -> None:
    machine = told["machine"]
    print(
        f"{told['stored']:,} blocks stored, {told['removed']:,} removed; Python "
        f"{machine['python']}, {machine['cores']} cores, load {machine['load']}"
    )
    if told["peers_skipped"]:
        print(f"peers skipped: {told['peers_skipped']}")
    print("\ningest, blocks/s      kvctl       kvctl, names   msgspec alone   Dynamo indexer")
    for row in told["ingest"]:
        name = f"{row['form']}, {row['hashes']}"
        print(
            f"  {name:<14}{_told(row['blocks_per_s']):>12}{_told(row['names_blocks_per_s']):>18}"
            f"{_told(row['decode_blocks_per_s']):>16}{_told(row['indexer_blocks_per_s']):>17}"
        )
    radix, indexer = told["radix_tree"] or {}, told["indexer"] or {}
    print("\n                             kvctl   Dynamo RadixTree   Dynamo indexer")
    print(f"  ingest, blocks/s   {'':>13}{_told(radix.get('blocks_per_s')):>19}")
    for title, name in (("match, µs/block", "match_us_per_block"), ("purge, µs", "purge_us")):
        print(
            f"  {title:<20}{_told(told[name]):>12}{_told(radix.get(name)):>19}"
            f"{_told(indexer.get(name)):>17}"
        )
    memory = told["bytes_per_entry"]
    print(
        f"  {'bytes/entry':<20}{_told(memory['int']):>12}{_told(radix.get('bytes_per_entry')):>19}"
        f"{_told(indexer.get('bytes_per_entry')):>17}"
    )
    print(f"  {'  after a match':<20}{_told(memory['int_after_match']):>12}")
    print(f"  {'  32-byte hashes':<20}{_told(memory['bytes']):>12}")
    print(f"  {'  names':<20}{_told(memory['names_int']):>12}")
    print("\nratios")
    for name, value in told["ratios"].items():
        print(f"  {name.replace('_', ' '):<30}{_told(value):>10}")
    print("\ngrowth: blocks    blocks/s   match, µs/block   purge, µs   bytes/entry")
    for row in told["growth"]:
        print(
            f"  {row['blocks']:>12,}{row['blocks_per_s']:>12,}{row['match_us_per_block']:>18}"
            f"{row['purge_us']:>12}{row['bytes_per_entry']:>14}"
        )


def _told(value: float | None) -> str:
    return "-" if value is None else f"{value:,}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=1_000_000, help="stored blocks")
    parser.add_argument("--runs", type=int, default=5, help="rounds the medians are of")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--huge", action="store_true", help="growth up to 10 million blocks")
    parser.add_argument("--no-peers", action="store_true", help="measure kvctl alone")
    options = parser.parse_args()
    skipped = "--no-peers" if options.no_peers else bench_peers.missing()
    told = measure(options.blocks, options.runs, peers=skipped is None)
    told["runs"] = options.runs
    told["peers_skipped"] = skipped
    sizes = [size for size in SIZES if size <= options.blocks] or [options.blocks]
    if options.huge:
        sizes.append(HUGE)
    told["growth"] = [measure_growth(size, min(options.runs, 3)) for size in sizes]
    if options.json:
        print(json.dumps(told, indent=1))
    else:
        _print(told)


if __name__ == "__main__":
    main()
