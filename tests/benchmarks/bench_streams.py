"""Many live streams at once: is anything lost, and what does it cost?

    python tests/benchmarks/bench_streams.py --streams 64 --rate 100 --seconds 60 [--json]

Another process publishes over loopback ZMQ (each batch stores four blocks and removes four); this
one reads all streams into an index in memory; with `--names` into one that only counts, as `kvctl
top` does. Prints batches, losses, cores used, resident memory every ten seconds.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import zmq

from kvctl.events import BlockRemoved, BlockStored, EventBatch, Tally, encode_batch, encode_seq
from kvctl.index import MemoryIndex, NameIndex
from kvctl.stream import StreamReader, StreamSource

_LIVES = 500  # batches after which a block is removed again


def publish(streams: int, rate: float, seconds: float) -> None:
    """The other process: prints its endpoints, waits for a line, then publishes."""
    context = zmq.Context()
    publishers = [context.socket(zmq.PUB) for _ in range(streams)]
    for publisher in publishers:
        publisher.setsockopt(zmq.SNDHWM, 100_000)
        publisher.bind("tcp://127.0.0.1:*")
    print(
        json.dumps([each.getsockopt_string(zmq.LAST_ENDPOINT) for each in publishers]), flush=True
    )
    sys.stdin.readline()
    began = time.monotonic()
    for seq in range(int(rate * seconds)):
        for number, publisher in enumerate(publishers):
            base = number * 10**12
            stored = BlockStored(
                [base + seq * 4 + at for at in range(4)], None,
                [(seq * 7 + at) % 50_000 for at in range(64)], 16, medium="GPU", group_idx=0,
            )  # fmt: skip
            gone = seq - _LIVES
            removed = BlockRemoved([base + gone * 4 + at for at in range(4)], medium="GPU")
            events = [stored, removed] if gone >= 0 else [stored]
            payload = encode_batch(EventBatch(time.time(), events, 0))
            publisher.send_multipart([f"kv@pod-{number}@m".encode(), encode_seq(seq), payload])
        ahead = began + (seq + 1) / rate - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)
    time.sleep(2)
    context.destroy(linger=0)


def measure(streams: int, rate: float, seconds: float, *, names: bool) -> dict[str, object]:
    """Read what the other process publishes; what it cost."""
    command = [sys.executable, __file__, "--publish", "--streams", str(streams),
               "--rate", str(rate), "--seconds", str(seconds)]  # fmt: skip
    expected = streams * int(rate * seconds)
    index: MemoryIndex | NameIndex = NameIndex() if names else MemoryIndex()
    tally, memory = Tally(), []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        endpoints = json.loads(other.stdout.readline())
        sources = [StreamSource(f"pod-{n}", each) for n, each in enumerate(endpoints)]
        with StreamReader(sources, tokens=not names) as reader:
            reader.wait_connected(30)
            time.sleep(1)
            other.stdin.write("go\n")
            other.stdin.flush()
            before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
            last = began
            while tally.batches < expected and time.monotonic() - last < 10:
                for record in reader.read(0.2):
                    last = time.monotonic()
                    tally.add(record)
                    index.apply(record)
                if time.monotonic() - began >= 10 * len(memory):
                    memory.append(round(_resident_mib(), 1))
            wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "streams": streams,
        "rate": rate,
        "batches": tally.batches,
        "expected": expected,
        "missing": expected - tally.batches,
        "gaps": len(tally.gaps),
        "seconds": round(wall, 1),
        "cores": round(used / wall, 2),
        "cpu_us_per_batch": round(used / max(1, tally.batches) * 1e6, 1),
        "resident_mib": memory,
        "entries": sum(index.entries_in(source.pod) for source in sources),
    }


def _resident_mib() -> float:
    with open("/proc/self/statm") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--names", action="store_true", help="count entries only")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--publish", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.publish:
        publish(options.streams, options.rate, options.seconds)
        return 0
    told = measure(options.streams, options.rate, options.seconds, names=options.names)
    if options.json:
        print(json.dumps(told))
    else:
        for name, value in told.items():
            print(f"{name}: {value}")
    return 1 if told["missing"] else 0


if __name__ == "__main__":
    sys.exit(main())
