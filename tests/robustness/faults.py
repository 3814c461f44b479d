"""Streams under faults: does the index end as the engines' caches, entry for entry?

    python tests/robustness/faults.py --seconds 600 --streams 16 [--json]

Half of the streams have a replay: their entries must equal what the engines hold. The other half
has none: theirs must equal what all that was published makes of them, without the batches that
were reported lost. Ends with 1 where either does not hold.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent))

from lossy_proxy import NOTHING, LossyProxy, Rates

from kvctl.events import Batch, BlockHash, Gap, Record, Restart
from kvctl.index import MemoryIndex
from kvctl.sim import SimConfig, SimPod
from kvctl.stream import StreamReader, StreamSource

YOUNG = 100
"""So many requests a life lasts at least. A shorter one, behind a cut connection and without a
replay, cannot be told from a gap: its seqs may go on where the last life's were last seen."""

RATES = Rates(drop=0.02, duplicate=0.03, delay=0.05, delay_s=0.05, cut=0.002)


@dataclass
class Outcome:
    """What a run came to. ``wrong`` names streams and how many entries differ."""

    seconds: float = 0.0
    batches: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    gaps: int = 0
    missing: int = 0
    recovered: int = 0
    restarts: int = 0
    entries: int = 0
    wrong: dict[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        return {
            **self.__dict__,
            "operations": dict(self.operations),
            "faults": dict(self.faults),
        }


class Feed:
    """A reader and the index it feeds, in a thread of its own."""

    def __init__(self, sources: list[StreamSource], tell: Callable[[Record], None]) -> None:
        self.index = MemoryIndex()
        self._tell = tell
        self._stopping = threading.Event()
        self.reader = StreamReader(sources)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for record in self.reader.read(0.05):
                self.index.apply(record)
                self._tell(record)

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        for record in self.reader.read(0.0):
            self.index.apply(record)
            self._tell(record)
        self.reader.__exit__(None, None, None)


def run(seconds: float, streams: int, seed: int, rates: Rates = RATES) -> Outcome:
    """Traffic and faults for so long; then quiet, and the comparison."""
    outcome = Outcome(seconds)
    pods = [SimPod(SimConfig(name=f"pod-{n:02}", blocks=64)) for n in range(streams)]
    proxy = LossyProxy([pod.events[0] for pod in pods], rates, seed)
    with_replay = [number % 2 == 0 for number in range(streams)]
    log: dict[str, list[Record]] = {pod.name: [] for pod in pods}
    truth: dict[str, list[Record]] = {pod.name: [] for pod in pods}
    subject = Feed(
        [
            StreamSource(pod.name, endpoint, pod.replay[0] if replay else None)
            for pod, endpoint, replay in zip(pods, proxy.endpoints, with_replay, strict=True)
        ],
        lambda record: log[record_pod(record)].append(record),
    )
    witness = Feed(
        [StreamSource(pod.name, pod.events[0], pod.replay[0]) for pod in pods],
        lambda record: truth[record_pod(record)].append(record),
    )
    try:
        time.sleep(0.5)
        drive(pods, proxy, outcome, seconds, seed)
        proxy.rates = NOTHING
        settle(pods, subject, witness, with_replay)
    finally:
        subject.close()
        witness.close()
        outcome.faults = proxy.faults
        proxy.close()
    for pod, replay in zip(pods, with_replay, strict=True):
        found = held(subject.index, pod.name)
        if replay:
            wanted = Counter(dict(pod.engine.cache()[0]["blocks"]))
        else:
            wanted = held(without_gaps(truth[pod.name], log[pod.name]), pod.name)
        outcome.entries += sum(found.values())
        difference = sum(((found - wanted) + (wanted - found)).values())
        if difference:
            outcome.wrong[pod.name] = difference
    for status in subject.reader.statuses():
        outcome.batches += status.batches
        outcome.gaps += status.gaps
        outcome.missing += status.missing
        outcome.recovered += status.recovered
        outcome.restarts += status.restarts
    for pod in pods:
        pod.close()
    return outcome


def record_pod(record: Record) -> str:
    return getattr(record, "pod", None) or record.wire.pod  # type: ignore[union-attr]


def drive(
    pods: list[SimPod], proxy: LossyProxy, outcome: Outcome, seconds: float, seed: int
) -> None:
    """Conversations with shared prefixes, and now and then a reset, a sleep, a restart."""
    random = Random(seed + 1)
    end = time.monotonic() + seconds
    young: Counter[int] = Counter()
    prefixes = [[random.randint(1, 9999) for _ in range(32)] for _ in range(6)]
    while time.monotonic() < end:
        at = random.randrange(len(pods))
        engine, chance = pods[at].engine, random.random()
        young[at] += 1
        if chance < 0.97 or (chance >= 0.997 and young[at] < YOUNG):
            tail = [random.randint(1, 9999) for _ in range(random.choice((16, 32, 64)))]
            engine.complete(random.choice(prefixes) + tail, max_tokens=random.choice((1, 20)))
            outcome.operations["completion"] += 1
        elif chance < 0.985:
            engine.reset()
            outcome.operations["reset"] += 1
        elif chance < 0.997:
            engine.sleep(random.choice((0, 1, 2)))
            engine.wake()
            outcome.operations["sleep and wake"] += 1
        else:
            engine.restart()
            young[at] = 0
            proxy.cut(at)  # a process that ends takes its connections with it
            outcome.operations["restart"] += 1
        time.sleep(0.002)


def settle(pods: list[SimPod], subject: Feed, witness: Feed, with_replay: list[bool]) -> None:
    """A last step of every engine, until both readers have everything there is."""
    for number in range(6):
        for pod in pods:
            pod.engine.complete([50_000 + number] * 32)
        time.sleep(0.5)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        ours = {status.pod: status.last_seq for status in subject.reader.statuses()}
        theirs = {status.pod: status.last_seq for status in witness.reader.statuses()}
        if ours == theirs and subject.reader.settled() and witness.reader.settled():
            return
        time.sleep(0.1)
    print("the streams did not settle", file=sys.stderr)


def held(index: MemoryIndex, pod: str) -> Counter[BlockHash]:
    """Block hashes with their reference counts."""
    return Counter({
        entry.block_hash: entry.references
        for entry in index.entries(pod)
        if entry.block_hash is not None
    })  # fmt: skip


def without_gaps(published: list[Record], reported: list[Record]) -> MemoryIndex:
    """The index of all that was published, but for what was reported lost, life by life."""
    lost: set[tuple[int, int]] = set()
    life = 0
    for record in reported:
        if isinstance(record, Restart):
            life += 1
        elif isinstance(record, Gap) and not record.recovered:
            lost.update((life, seq) for seq in range(record.from_seq, record.to_seq + 1))
    index = MemoryIndex()
    life = 0
    for record in published:
        if isinstance(record, Restart):
            life += 1
        if isinstance(record, Batch) and (life, record.wire.seq) in lost:
            continue
        index.apply(record)
    return index


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    outcome = run(options.seconds, options.streams, options.seed)
    if options.json:
        print(json.dumps(outcome.to_dict(), indent=1))
    else:
        for name, value in outcome.to_dict().items():
            print(f"{name}: {value}")
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
