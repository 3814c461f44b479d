"""Memory of an index, seen from outside: how a fresh process grows while it takes batches in.

`python bench_rss.py kvctl|kvctl-names|radix-tree FILE` prints it as JSON; FILE is what `write_feed`
made.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from kvctl.events import WireBatch, decode_record
from kvctl.index import MemoryIndex, NameIndex, Prompt

_HEAD = 4


def resident_bytes(pid: int | str = "self") -> int:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


def write_feed(path: Path, items: Iterable[Any]) -> None:
    """Items for the fresh process, each behind its length: it reads one at a time."""
    encode = msgspec.msgpack.encode
    with path.open("wb") as file:
        for item in items:
            data = encode(item)
            file.write(len(data).to_bytes(_HEAD, "little") + data)


def growth(kind: str, feed: Path) -> dict[str, int]:
    """Bytes that a fresh process grew by, taking the feed in (`_MEASURES`)."""
    done = subprocess.run(
        [sys.executable, __file__, kind, str(feed)], check=True, capture_output=True, text=True
    )
    return dict(json.loads(done.stdout))


def _read_feed(path: Path, kind: Any) -> Iterator[Any]:
    decode = msgspec.msgpack.Decoder(kind).decode
    with path.open("rb") as file:
        while head := file.read(_HEAD):
            yield decode(file.read(int.from_bytes(head, "little")))


def _kvctl(feed: Path) -> dict[str, int]:
    index = MemoryIndex()
    before = _settled()
    for wire in _read_feed(feed, WireBatch):
        index.apply(decode_record(wire))
    grown = _settled() - before
    index.match(Prompt((0,) * 16))
    return {"bytes": grown, "bytes_after_match": _settled() - before}


def _names(feed: Path) -> dict[str, int]:
    index = NameIndex()
    before = _settled()
    for wire in _read_feed(feed, WireBatch):
        index.apply(decode_record(wire, tokens=False))
    return {"bytes": _settled() - before}


def _radix_tree(feed: Path) -> dict[str, int]:
    from dynamo.llm import RadixTree

    tree = RadixTree()
    before = _settled()
    for worker, event in _read_feed(feed, tuple[int, bytes]):
        tree.apply_event(worker, event)
    return {"bytes": _settled() - before}


def _settled() -> int:
    gc.collect()
    return resident_bytes()


_MEASURES = {"kvctl": _kvctl, "kvctl-names": _names, "radix-tree": _radix_tree}


if __name__ == "__main__":
    print(json.dumps(_MEASURES[sys.argv[1]](Path(sys.argv[2]))))
