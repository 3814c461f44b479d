"""A simulated vLLM engine: real HTTP and real ZMQ, for experiments, demos and tests."""

from kvctl.sim.config import MAX_RANKS, PORTS_PER_POD, SimConfig
from kvctl.sim.engine import Completion, FlushMode, RefusedError, SimulatedEngine
from kvctl.sim.pod import SimPod

__all__ = [
    "MAX_RANKS",
    "PORTS_PER_POD",
    "Completion",
    "FlushMode",
    "RefusedError",
    "SimConfig",
    "SimPod",
    "SimulatedEngine",
]
