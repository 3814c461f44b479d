"""The #2287 experiment: a wiped cache, a router that does not know, and what each fix is worth."""

from kvctl.reproduce.matrix import Choices, Matrix, run_real, run_simulated
from kvctl.reproduce.scenario import HANDLERS, CellResult, Delivery, Handler, Scenario, Trigger

__all__ = [
    "HANDLERS",
    "CellResult",
    "Choices",
    "Delivery",
    "Handler",
    "Matrix",
    "Scenario",
    "Trigger",
    "run_real",
    "run_simulated",
]
