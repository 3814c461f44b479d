"""Mutated real input into every reader: nothing but kvctl's own errors, and no memory lost.

    python tests/robustness/fuzz.py --inputs 1000000 [--seed 1] [--json]

The seeds are recordings of real engines and what kvctl itself writes; each input is one of them
with a few bytes changed, cut out, doubled, or put in from another. Ends with 1 on a stranger's
exception, or where memory has grown by more than the bound.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

from recordings import CAPTURES, METRICS, wire_batches

from kvctl.capture import CaptureWriter, open_capture
from kvctl.engine import engine_states, parse_scrape
from kvctl.errors import KvctlError
from kvctl.events import DecodeError, WireBatch, decode_batch, parse_message, parse_replay
from kvctl.fleet import load_config, parse_pod
from kvctl.index.dynamo.answers import Dump, QueryAnswer, Workers, decode
from kvctl.index.redisdb.podfields import PodField, parse_field
from kvctl.operate.prompts import parse_tokens

BOUND_MIB = 256
INTERESTING = [0, 1, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xC0, 0xC1, 0xC4, 0xC6, 0xCB, 0xCF, 0xD3,
               0xDB, 0xDC, 0xDD, 0xDE, 0xDF, 0xE0, 0xFF, ord('"'), ord("{"), ord("\n")]  # fmt: skip


@dataclass
class Target:
    """A reader, what it is fed with, and its share of the inputs."""

    name: str
    share: float
    seeds: list[bytes]
    read: Callable[[bytes], object]


@dataclass
class Outcome:
    """What a run came to."""

    inputs: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    strangers: list[str] = field(default_factory=list)
    grown_mib: float = 0.0
    seconds: float = 0.0


def mutate(random: Random, seeds: list[bytes]) -> bytes:
    """One of the seeds with one to four changes."""
    data = bytearray(random.choice(seeds))
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(data) + 1)
        kind = random.randrange(6)
        if kind == 0 and at < len(data):
            data[at] = random.choice(INTERESTING)
        elif kind == 1 and at < len(data):
            data[at] ^= 1 << random.randrange(8)
        elif kind == 2:
            del data[at : at + random.randint(1, 16)]
        elif kind == 3:
            data[at:at] = data[at : at + random.randint(1, 64)]
        elif kind == 4:
            other = random.choice(seeds)
            start = random.randrange(len(other) + 1)
            data[at:at] = other[start : start + random.randint(1, 64)]
        else:
            data[at:at] = bytes(random.choice(INTERESTING) for _ in range(random.randint(1, 5)))
    return bytes(data)


def targets(folder: Path) -> list[Target]:
    """Every reader of what comes from outside."""
    payloads = [
        wire.payload
        for path in sorted(CAPTURES.glob("*.jsonl"))
        for wire in wire_batches(path.stem)
    ]
    kvcap = folder / "seed.kvcap"
    with CaptureWriter(kvcap, pods={"pod-a": {}}) as writer:
        for seq, payload in enumerate(payloads[:8]):
            writer.write(WireBatch(seq, "pod-a", 0, b"kv@pod-a@tiny", seq, payload))
    lines = folder / "seed.jsonl"
    with CaptureWriter(lines) as writer:
        for seq, payload in enumerate(payloads[:3]):
            writer.write(WireBatch(seq, "pod-a", 0, b"kv@pod-a@tiny", seq, payload))
    work, config = folder / "work.kvcap", folder / "config.toml"

    def read_capture(data: bytes) -> None:
        work.write_bytes(data)
        with open_capture(work) as reader:
            for _record in reader:
                pass

    def read_lines(data: bytes) -> None:
        path = work.with_suffix(".jsonl")
        path.write_bytes(data)
        with open_capture(path) as reader:
            for _record in reader:
                pass

    def read_config(data: bytes) -> None:
        config.write_bytes(data)
        load_config(config).context(None)

    def read_metrics(data: bytes) -> None:
        engine_states(parse_scrape(data.decode(errors="replace")), at=0.0)

    def read_frames(data: bytes) -> None:
        parts = data.split(b"|")
        with contextlib.suppress(DecodeError):
            parse_message(parts)
        parse_replay(parts)

    def read_dynamo(data: bytes) -> None:
        for kind in (Workers, Dump, QueryAnswer):
            with contextlib.suppress(ValueError):
                decode(data, kind)

    metrics = [path.read_bytes()[:20_000] for path in sorted(METRICS.glob("*.txt"))]
    fields = [
        PodField("10.0.0.7:8000", "gpu", group=1).encode(),
        PodField("p", "cpu", speculative=True).encode(),
        b"10.0.0.7@gpu[speculative]",
    ]
    configs = [
        b'current-context = "a"\n[contexts.a]\napi-key-file = "/k"\n[contexts.a.pods.pod-a]\n'
        b'host = "10.0.0.7"\n[contexts.a.pods."ns/b"]\nevents = "tcp://h:1"\napi = "http://h:2"\n'
    ]
    answers = [
        b'[{"instance_id":1,"model_name":"m","block_size":16,"endpoints":{"0":"tcp://h:1"}}]',
        b'{"m:default":{"block_size":16,"events":[{"worker_id":1,"storage_tier":"device","event":'
        b'{"event_id":0,"dp_rank":0,"data":{"stored":{"blocks":[{"block_hash":1}]}}}}]}}',
        b'{"scores":{"1":{"0":64}},"instances":{"1":{"longest_matched":64,"gpu":64}}}',
    ]
    specs = [b"name=pod-a,host=10.0.0.7,dp=2", b"name=a,events=tcp://[::1]:5557|tcp://h:2,api=none"]
    return [
        Target("batch payload", 0.40, payloads, decode_batch),
        Target(
            "batch without tokens", 0.10, payloads, lambda data: decode_batch(data, tokens=False)
        ),
        Target("frames", 0.10, [b"kv@a@m|" + bytes(8) + b"|x", b"||" + b"\xff" * 8], read_frames),
        Target("capture", 0.06, [kvcap.read_bytes()], read_capture),
        Target("capture lines", 0.04, [lines.read_bytes()], read_lines),
        Target("metrics", 0.02, metrics, read_metrics),
        Target("redis field", 0.12, fields, lambda data: parse_field(data, b"")),
        Target("dynamo", 0.08, answers, read_dynamo),
        Target("config", 0.02, configs, read_config),
        Target("pod spec", 0.04, specs, lambda data: parse_pod(data.decode(errors="replace"))),
        Target(
            "tokens", 0.02, [b"[1,2,3]", b"1,2,3"],
            lambda data: parse_tokens(data.decode(errors="replace")),
        ),
    ]  # fmt: skip


def run(inputs: int, seed: int, folder: Path) -> Outcome:
    """So many inputs over all readers."""
    outcome, random = Outcome(), Random(seed)
    began = time.monotonic()
    everything = targets(folder)
    for target in everything:  # what is loaded on first use is no growth
        for data in target.seeds[:1]:
            with contextlib.suppress(KvctlError, DecodeError):
                target.read(data)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for target in everything:
        for _ in range(int(inputs * target.share)):
            data = mutate(random, target.seeds)
            outcome.inputs[target.name] += 1
            try:
                target.read(data)
            except (KvctlError, DecodeError):
                outcome.refused[target.name] += 1
            except Exception:
                if len(outcome.strangers) < 20:
                    outcome.strangers.append(
                        f"{target.name}: {data[:200]!r}\n{traceback.format_exc()}"
                    )
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome.grown_mib = (after - before) / 1024
    outcome.seconds = time.monotonic() - began
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcome = run(options.inputs, options.seed, Path(folder))
    told = {
        **outcome.__dict__,
        "inputs": dict(outcome.inputs),
        "refused": dict(outcome.refused),
        "total": sum(outcome.inputs.values()),
    }
    if options.json:
        print(json.dumps(told, indent=1))
    else:
        for name, value in told.items():
            print(f"{name}: {value}")
    return 1 if outcome.strangers or outcome.grown_mib > BOUND_MIB else 0


if __name__ == "__main__":
    sys.exit(main())
