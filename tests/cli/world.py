"""The world that the examples of kvctl's help speak of, for real, on this machine.

Two engines at the usual ports of 10.0.0.7 and 10.0.0.8, which a context `prod` and a cluster list;
llm-d's Redis at 10.0.0.2:6379; captures, indexes and a prompt in the folder. An example's addresses
are moved to this world's: 127.x.y of the loopback stands for 10.0.0.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from driving import PROMPT, complete
from kube_server import KubeServer, pod_object, write_kubeconfig

from kvctl.capture.demo import demo_file
from kvctl.sim import SimConfig, SimPod

PATIENCE = 150.0
LABELS = {
    "app": "vllm",
    "model.aibrix.ai/name": "tiny",
    "model.aibrix.ai/kv-events-enabled": "true",
    "llm-d.ai/inferenceServing": "true",
}
CONTEXT = """current-context = "prod"
[contexts.prod.pods.pod-a]
host = "{network}.7"
[contexts.prod.pods.pod-b]
host = "{network}.8"
"""


@dataclass(frozen=True)
class Outcome:
    """How an example ended: the codes of kvctl and of what it was piped into."""

    codes: tuple[int, ...]
    out: str
    err: str


class World:
    """Made for one example, and gone after it."""

    def __init__(self, folder: Path, network: str, redis_port: int) -> None:
        self.folder = folder
        self.network = network
        self._redis_port = redis_port
        self._stack = ExitStack()
        self.env = {
            key: value for key, value in os.environ.items() if not key.startswith("KVCTL_")
        } | {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(folder / "home"),
            "KVCTL_CONFIG": str(folder / "config.toml"),
            "KUBECONFIG": str(folder / "kubeconfig"),
            "XDG_STATE_HOME": str(folder / "state"),
            "PYTHONWARNINGS": "error",
        }
        self.work = folder / "work"

    def __enter__(self) -> World:
        for name in ("bin", "home", "work"):
            (self.folder / name).mkdir()
        wrapper = self.folder / "bin" / "kvctl"
        wrapper.write_text(
            f'#!/bin/sh\necho $$ > {self.folder}/pid\nexec {sys.executable} -m kvctl "$@"\n'
        )
        wrapper.chmod(0o755)
        with ExitStack() as stack:
            for name, host in (("pod-a", 7), ("pod-b", 8)):
                pod = stack.enter_context(SimPod(SimConfig(name=name)))
                complete(pod)
                ports = (8000, pod.api), (5557, pod.events[0]), (5558, pod.replay[0])
                for port, url in ports:
                    stack.enter_context(
                        forwarded((f"{self.network}.{host}", port), urlsplit(url).port)
                    )
            self._stack = stack.pop_all()
        (self.folder / "config.toml").write_text(CONTEXT.format(network=self.network))
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def furnish(self, example: str) -> None:
        """Make true what the example takes for granted, and nothing of what it brings about."""
        words = example.split()
        if "set-context" in words:
            (self.folder / "config.toml").unlink()  # it tells where prod is
        (self.work / "prompt.json").write_text(str(PROMPT))
        (self.work / "secret").write_text("correct horse battery staple")
        capture = self.work / "incident.kvcap"
        capture.write_bytes(demo_file("demo:fleet").read_bytes())
        if "tail" not in words:
            self.run("kvctl -q capture convert incident.kvcap incident.kvcap.zst")
        if "recording.jsonl" in words:
            self.run("kvctl -q capture convert incident.kvcap recording.jsonl")
        if "--force" in words:
            (self.work / "public.kvcap").touch()
        if "fleet.sqlite" in example and "tail" not in words:
            self.run("kvctl -q tail --context prod --count 2 --index fleet.sqlite -o jsonl")
        if "yesterday.sqlite" in words:
            for name, until in (("yesterday", "2026-12-01T07:04:16Z"), ("today", "2027-01-01")):
                self.run(f"kvctl -q replay incident.kvcap --until {until} --save {name}.sqlite")
        if "redis://" in example:
            self._stack.enter_context(forwarded((f"{self.network}.2", 6379), self._redis_port))
            self.run(
                "kvctl -q tail --context prod --count 2 --index redis://10.0.0.2:6379/0 -o jsonl"
            )
        if {"-n", "-A", "--preset"} & set(words):
            server = self._stack.enter_context(KubeServer())
            write_kubeconfig(self.folder / "kubeconfig", server.url)
            for name, host in (("pod-a", 7), ("pod-b", 8)):
                ip = f"{self.network}.{host}"
                server.put(pod_object(name, namespace="serving", ip=ip, labels=LABELS))

    def run(self, example: str, *, endless: bool = False) -> Outcome:
        """Run the line in a shell; one that is ``endless`` is interrupted when it has spoken."""
        line = example.replace("10.0.0.", f"{self.network}.")
        for name, port in (("--port-base 9000", free_ports(30)), ("127.0.0.1:5557", free_ports(4))):
            line = line.replace(name, name[: -len("9000")] + str(port))
        told = f'{line}\necho "${{PIPESTATUS[@]}}" > {self.folder}/codes\n'
        out, err = self.folder / "out", self.folder / "err"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                ["bash", "-c", told], cwd=self.work, env=self.env,
                stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
            )  # fmt: skip
            try:
                if endless:
                    self._interrupt(process, out, err)
                process.wait(PATIENCE)
            finally:
                if process.poll() is None:
                    self._signal(signal.SIGKILL)
                    process.kill()
                    process.wait()
        codes = tuple(map(int, (self.folder / "codes").read_text().split()))
        return Outcome(codes, out.read_text(), err.read_text())

    def _interrupt(self, process: subprocess.Popen[bytes], out: Path, err: Path) -> None:
        """Ctrl-C, once it has said something and then nothing more, or goes on and on."""
        began = spoke = time.monotonic()
        seen = 0
        while process.poll() is None:
            now = time.monotonic()
            size = out.stat().st_size + err.stat().st_size
            if size != seen:
                began = began if seen else now
                seen, spoke = size, now
            if now - spoke > (1.0 if seen else 4.0) or (seen and now - began > 3.0):
                break
            time.sleep(0.1)
        self._signal(signal.SIGINT)

    def _signal(self, number: int) -> None:
        with suppress(OSError, ValueError):
            os.kill(int((self.folder / "pid").read_text()), number)


def private_network() -> str:
    """A piece of the loopback that nobody else uses, as `127.17.42`."""
    return f"127.{random.randint(1, 254)}.{random.randint(0, 254)}"


def has_loopback_network() -> bool:
    """Whether all of 127.0.0.0/8 is this machine, as on Linux."""
    with socket.socket() as tried:
        try:
            tried.bind(("127.66.6.6", 0))
        except OSError:
            return False
    return True


def free_ports(count: int) -> int:
    """The first of so many ports in a row that are free now."""
    while True:
        base = random.randint(20_000, 30_000)
        with suppress(OSError), ExitStack() as stack:
            for port in range(base, base + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return base


class _Relay(socketserver.BaseRequestHandler):
    """Carries one connection's bytes both ways."""

    def handle(self) -> None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.server.to)) as far:
            back = threading.Thread(target=_carry, args=(far, self.request), daemon=True)
            back.start()
            _carry(self.request, far)
            back.join()


class _Relays(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    to = 0


@contextmanager
def forwarded(at: tuple[str, int], port: int | None) -> Iterator[None]:
    """Connections to ``at`` reach this machine's ``port``."""
    with _Relays(at, _Relay) as server:
        server.to = port or 0
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def _carry(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
