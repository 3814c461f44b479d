"""A long run of `tail --index` and `reconcile --watch` on busy pods: do they grow?

    python tests/robustness/soak.py --minutes 30 --streams 8 [--json]

Prints the resident memory and the open descriptors of both every ten seconds, and at the end what
they were after the first fifth and at the end. Ends with 1 where either grew by more than a tenth
(memory) or at all (descriptors) from there on, or where a process ended by itself.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from kvctl.sim import SimConfig, SimPod

SAMPLE_S = 10.0
GROWTH = 1.10


@dataclass(frozen=True)
class Sample:
    """One look: MiB of resident memory and open descriptors, of the tail and of the reconcile."""

    at: float
    tail_mib: float
    tail_fds: int
    reconcile_mib: float
    reconcile_fds: int


def look(at: float, tail: int, reconcile: int) -> Sample:
    return Sample(at, _mib(tail), _fds(tail), _mib(reconcile), _fds(reconcile))


def _mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _fds(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def run(seconds: float, streams: int, folder: Path, *, show: bool = True) -> list[Sample]:
    """Traffic for so long, with resets and sleeps; the samples."""
    pods = [SimPod(SimConfig(name=f"pod-{n}", blocks=256)) for n in range(streams)]
    specs = [
        word
        for pod in pods
        for word in (
            "--pod",
            f"name={pod.name},api={pod.api},events={pod.events[0]},replay={pod.replay[0]}",
        )
    ]
    kvctl, index = [sys.executable, "-m", "kvctl"], str(folder / "soak.sqlite")
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    random = Random(1)
    prefixes = [[random.randint(1, 9999) for _ in range(64)] for _ in range(20)]
    samples: list[Sample] = []
    with (folder / "log").open("w") as log:
        tail = subprocess.Popen(
            [*kvctl, "tail", *specs, "--index", index, "-o", "jsonl"], stderr=log, **quiet
        )
        time.sleep(3)
        reconcile = subprocess.Popen(
            [*kvctl, "reconcile", *specs, "--index", index, "--watch", "--interval", "1", "--yes",
             "--purge-suspect", "-o", "jsonl", "--metrics-port", "0"],
            stderr=log, **quiet,
        )  # fmt: skip
        time.sleep(3)
        began = time.monotonic()
        try:
            while (now := time.monotonic() - began) < seconds:
                for pod in pods:
                    tail_of_prompt = [random.randint(1, 9999) for _ in range(32)]
                    pod.engine.complete(random.choice(prefixes) + tail_of_prompt)
                pod, chance = random.choice(pods), random.random()
                if chance < 0.01:
                    pod.engine.reset()
                elif chance < 0.015:
                    pod.engine.sleep(random.choice((0, 1, 2)))
                    time.sleep(random.random())
                    pod.engine.wake()
                if not samples or now - samples[-1].at >= SAMPLE_S:
                    samples.append(look(now, tail.pid, reconcile.pid))
                    if show:
                        print(json.dumps(asdict(samples[-1])), flush=True)
                time.sleep(0.02)
            for process in (tail, reconcile):
                if process.poll() is not None:
                    raise RuntimeError(f"{process.args} ended with {process.returncode}")
        finally:
            for process in (tail, reconcile):
                process.send_signal(signal.SIGINT)
                process.wait(30)
            for pod in pods:
                pod.close()
    return samples


def grown(samples: list[Sample]) -> list[str]:
    """What has grown since the first fifth, in words."""
    start = samples[len(samples) // 5]
    late = samples[-max(1, len(samples) // 10) :]
    found = []
    for name in ("tail_mib", "reconcile_mib"):
        then, now = getattr(start, name), sum(getattr(each, name) for each in late) / len(late)
        if now > then * GROWTH:
            found.append(f"{name}: {then:.1f} -> {now:.1f}")
    for name in ("tail_fds", "reconcile_fds"):
        then, now = getattr(start, name), min(getattr(each, name) for each in late)
        if now > then:
            found.append(f"{name}: {then} -> {now}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        samples = run(options.minutes * 60, options.streams, Path(folder), show=not options.json)
    found = grown(samples)
    told = {"from": asdict(samples[len(samples) // 5]), "to": asdict(samples[-1]), "grown": found}
    print(json.dumps(told, indent=1))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
