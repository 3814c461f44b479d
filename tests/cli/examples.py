"""The examples of every command's help, and a world in which their words are true."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driving import PROMPT, complete, spec
from kube_engines import as_pod
from kube_server import KubeServer, write_kubeconfig

from kvctl.cli.commands import COMMANDS
from kvctl.cli.group import load_command
from kvctl.sim import SimConfig, SimPod

PATIENCE = 60.0
LABELS = {
    "app": "vllm",
    "model.aibrix.ai/name": "tiny",
    "model.aibrix.ai/kv-events-enabled": "true",
    "llm-d.ai/inferenceServing": "true",
    "llm-d.ai/model": "tiny",
}


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that does something, with its name as typed."""
    for entry in COMMANDS:
        yield from _below(entry.name, load_command(entry))


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for word, each in inner.items():
        yield from _below(f"{name} {word}", each)


@dataclass(frozen=True)
class Ended:
    """How an example ended; 130 if it had to be interrupted."""

    code: int
    out: str
    err: str


class World:
    """Two engines, a cluster that has them, a Redis, and files of the names that examples use."""

    def __init__(self, folder: Path, pods: list[SimPod], redis: str, kubeconfig: Path) -> None:
        self._folder = folder
        self._redis = redis
        first, second = pods
        # An example's engine has the usual ports, of which this machine has one set.
        self._words = {
            "host=10.0.0.7": spec(first).partition(",")[2],
            "10.0.0.7": first.name,
            "10.0.0.8": second.name,
            "redis://10.0.0.2:6379/0": redis,
        }
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("KVCTL_")} | {
            "HOME": str(folder / "home"),
            "KVCTL_CONFIG": str(folder / "config.toml"),
            "KUBECONFIG": str(kubeconfig),
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "XDG_STATE_HOME": str(folder / "state"),
        }
        for name in ("ZDOTDIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
            self.env.pop(name, None)

    def run(self, example: str, *, stop_after: float | None = None) -> Ended:
        """Type it into a shell; ``stop_after`` seconds press Ctrl-C."""
        for word, meant in self._words.items():
            example = example.replace(word, meant)
        process = subprocess.Popen(
            ["bash", "-c", f"set -o pipefail; {example}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.env,
            cwd=self._folder,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=stop_after or PATIENCE)
            code = process.returncode
        except subprocess.TimeoutExpired:
            assert stop_after is not None, f"{example} does not end"
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE)
            code = 130
        return Ended(code, out.decode(), err.decode())


@contextmanager
def world(folder: Path, redis: str, files: Path | None = None) -> Iterator[World]:
    """Make it in an empty folder; with ``files`` of a world made before, which saves time."""
    with ExitStack() as stack:
        pods = [
            stack.enter_context(SimPod(SimConfig(name=name, loras=("ad1",))))
            for name in ("pod-a", "pod-b")
        ]
        complete(pods[0])
        complete(pods[1], list(range(100, 180)))
        server = stack.enter_context(KubeServer())
        for pod in pods:
            server.put(as_pod(pod, namespace="serving", labels=LABELS))
        if files is not None:
            shutil.copytree(files, folder, dirs_exist_ok=True)
        kubeconfig = write_kubeconfig(folder / "kubeconfig", server.url, namespace="serving")
        (folder / "config.toml").write_text(_config(pods))
        made = World(folder, pods, redis, kubeconfig)
        if files is None:
            _make_files(made, folder)
        yield made


def _config(pods: list[SimPod]) -> str:
    lines = ['current-context = "prod"']
    for pod in pods:
        lines.append(f"[contexts.prod.pods.{pod.name}]")
        lines += [
            f'{key} = "{value}"'
            for key, _, value in (part.partition("=") for part in spec(pod).split(","))
            if key != "name"
        ]
    return "\n".join(lines)


def _make_files(made: World, folder: Path) -> None:
    (folder / "home").mkdir()
    (folder / "bin").mkdir()
    command = folder / "bin" / "kvctl"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m kvctl "$@"\n')
    command.chmod(0o755)
    (folder / "prompt.json").write_text(json.dumps(PROMPT))
    (folder / "secret").write_text("s" * 32)
    for line in (
        "kvctl tail --capture incident.kvcap --index fleet.sqlite --timeout 1",
        "kvctl capture convert incident.kvcap recording.jsonl",
        "kvctl capture convert incident.kvcap old.kvcap.zst",
        "kvctl replay demo:fleet --save yesterday.sqlite",
        "kvctl replay demo:warm --save today.sqlite",
    ):
        ended = made.run(line)
        assert ended.code == 0, f"{line}\n{ended.err}"
