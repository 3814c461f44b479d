"""The run of `kvctl sim`: engines up, their addresses told, then waiting to be stopped."""

from __future__ import annotations

import json
import shlex
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack

from kvctl.cli.output import OutputFormat, plain_table, print_table, say
from kvctl.sim import PORTS_PER_POD, SimConfig, SimPod


def simulate(configs: Sequence[SimConfig], port_base: int, output: OutputFormat) -> int:
    """Run the engines until interrupted, which is how this ends: exit code 0."""
    with ExitStack() as stack:
        try:
            pods = [
                stack.enter_context(
                    SimPod(config.at_ports(port_base + PORTS_PER_POD * n) if port_base else config)
                )
                for n, config in enumerate(configs)
            ]
            _tell(pods, output)
            threading.Event().wait()
        except KeyboardInterrupt:
            say("stopping")
    return 0


def _tell(pods: Sequence[SimPod], output: OutputFormat) -> None:
    if output == "json":
        told = [
            {"name": pod.name, "api": pod.api, "events": pod.events, "replay": pod.replay}
            for pod in pods
        ]
        sys.stdout.write(json.dumps({"pods": told}) + "\n")
        sys.stdout.flush()
        return
    table = plain_table("pod", "api", "events", "replay")
    for pod in pods:
        table.add_row(pod.name, pod.api, " ".join(pod.events), " ".join(pod.replay))
    print_table(table)
    words = ["kvctl", "tail"]
    for pod in pods:
        events, replay = "|".join(pod.events), "|".join(pod.replay)
        words += ["--pod", f"name={pod.name},api={pod.api},events={events},replay={replay}"]
    say("all are ready; Ctrl-C stops them. Try:")
    say(shlex.join(words), whole=True)
