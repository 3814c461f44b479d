"""SIGKILL of `kvctl tail --index --capture` at random moments under load: is anything wrong?

    python tests/robustness/kills.py --kills 200 [--json]

After each kill the index must hold exactly what the batches up to its position make, and the
capture must read to its cut without a wrong batch; the next tail goes on with both. At the end,
without a kill, the index must equal the engine's cache. Ends with 1 where something does not hold.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from kvctl.capture import open_capture
from kvctl.events import Batch, BlockHash, Record
from kvctl.index import MemoryIndex, SqliteIndex
from kvctl.sim import SimConfig, SimPod
from kvctl.stream import StreamReader, StreamSource, order_capture


@dataclass
class Outcome:
    """What a run came to."""

    kills: int = 0
    before_first_commit: int = 0
    batches_published: int = 0
    batches_in_captures: int = 0
    cut_captures: int = 0
    wrong: list[str] = field(default_factory=list)


class Truth:
    """All that a pod publishes, kept while the tails come and go."""

    def __init__(self, pod: SimPod) -> None:
        self.batches: list[Batch] = []
        self._pod = pod
        self._stopping = threading.Event()
        self._reader = StreamReader([StreamSource(pod.name, pod.events[0], pod.replay[0])])
        self._threads = [
            threading.Thread(target=self._listen, daemon=True),
            threading.Thread(target=self._load, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def up_to(self, seq: int) -> Counter[BlockHash]:
        """What an index holds after the batch of that seq."""
        end = time.monotonic() + 10
        while len(self.batches) <= seq and time.monotonic() < end:
            time.sleep(0.01)
        index = MemoryIndex()
        for batch in self.batches[: seq + 1]:
            index.apply(batch)
        return held(index)

    def stop_load(self) -> None:
        self._stopping.set()
        self._threads[1].join()

    def close(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        self._reader.__exit__(None, None, None)

    def _listen(self) -> None:
        while not self._stopping.is_set():
            self._take(self._reader.read(0.05))

    def _take(self, records: list[Record]) -> None:
        self.batches += [record for record in records if isinstance(record, Batch)]

    def _load(self) -> None:
        random = Random(5)
        prefixes = [[random.randint(1, 9999) for _ in range(32)] for _ in range(8)]
        while not self._stopping.is_set():
            tail = [random.randint(1, 9999) for _ in range(random.choice((16, 32, 64)))]
            self._pod.engine.complete(random.choice(prefixes) + tail)
            if random.random() < 0.01:
                self._pod.engine.reset()
            time.sleep(0.003)


def held(index: MemoryIndex | SqliteIndex) -> Counter[BlockHash]:
    """Block hashes with their reference counts."""
    return Counter({
        entry.block_hash: entry.references
        for entry in index.entries("pod-a")
        if entry.block_hash is not None
    })  # fmt: skip


def run(kills: int, folder: Path, seed: int = 1) -> Outcome:
    """So many tails, each killed at a random moment; one that is not, at the end."""
    outcome, random = Outcome(), Random(seed)
    path = folder / "index.sqlite"
    with SimPod(SimConfig(blocks=128)) as pod:
        truth = Truth(pod)
        try:
            for number in range(kills):
                capture = folder / f"{number // 10}.kvcap"
                tail = start(pod, path, capture)
                if random.random() < 0.9:  # the others are killed on their way up
                    wait_for_growth(capture, tail)
                time.sleep(random.uniform(0.0, 0.6))
                tail.send_signal(signal.SIGKILL)
                tail.wait()
                outcome.kills += 1
                check_index(path, truth, outcome)
                check_capture(capture, truth, outcome)
            truth.stop_load()
            pod.engine.complete([60_000] * 32)
            tail = start(pod, path, folder / "last.kvcap", "--timeout", "5")
            if tail.wait(30):
                outcome.wrong.append(f"the last tail ended with {tail.returncode}")
            with SqliteIndex(path, read_only=True) as index:
                if held(index) != Counter(dict(pod.engine.cache()[0]["blocks"])):
                    outcome.wrong.append("the index at the end is not the engine's cache")
        finally:
            truth.close()
        outcome.batches_published = len(truth.batches)
    for capture in folder.glob("*.kvcap"):
        with open_capture(capture) as reader:
            outcome.batches_in_captures += sum(
                isinstance(record, Batch) for record in order_capture(reader)
            )
    return outcome


def wait_for_growth(capture: Path, tail: subprocess.Popen[bytes]) -> None:
    """Until the tail has written something."""
    before = capture.stat().st_size if capture.exists() else 0
    end = time.monotonic() + 30
    while time.monotonic() < end and tail.poll() is None:
        if capture.exists() and capture.stat().st_size > before + 1000:
            return
        time.sleep(0.005)


def start(pod: SimPod, path: Path, capture: Path, *more: str) -> subprocess.Popen[bytes]:
    """A tail with an index and a capture, which it continues if it is there."""
    command = [
        sys.executable, "-m", "kvctl", "tail",
        "--pod", f"name=pod-a,api=none,events={pod.events[0]},replay={pod.replay[0]}",
        "--index", str(path), "--capture", str(capture), *more,
    ]  # fmt: skip
    if capture.exists():
        command.append("--append")
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def check_index(path: Path, truth: Truth, outcome: Outcome) -> None:
    """The index holds what the batches up to its position make, no more and no less."""
    if not path.exists():
        outcome.before_first_commit += 1
        return
    with SqliteIndex(path) as index:
        position = index.positions().get(("pod-a", 0))
        found = held(index)
    if position is None:
        outcome.before_first_commit += 1
        if found:
            outcome.wrong.append(f"kill {outcome.kills}: entries without a position")
        return
    wanted = truth.up_to(position.seq)
    if found != wanted:
        difference = sum(((found - wanted) + (wanted - found)).values())
        outcome.wrong.append(f"kill {outcome.kills}: {difference} entries differ at {position.seq}")


def check_capture(path: Path, truth: Truth, outcome: Outcome) -> None:
    """Every batch in the capture is as it was published."""
    if not path.exists() or not path.stat().st_size:
        return
    with open_capture(path) as reader:
        for record in order_capture(reader):
            if isinstance(record, Batch):
                seq = record.wire.seq
                truth.up_to(seq) if seq >= len(truth.batches) else None
                if record.wire.payload != truth.batches[seq].wire.payload:
                    outcome.wrong.append(f"kill {outcome.kills}: batch {seq} is another")
        outcome.cut_captures += bool(reader.warnings)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcome = run(options.kills, Path(folder))
    if options.json:
        print(json.dumps(outcome.__dict__, indent=1))
    else:
        for name, value in outcome.__dict__.items():
            print(f"{name}: {value}")
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
