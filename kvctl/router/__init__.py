"""Router models: who would get a prompt, and why."""

from kvctl.router.aibrix import LEAST_LOADED, PREFIX, AibrixRouter, Constants, choose_aibrix
from kvctl.router.choice import Choice, Standing
from kvctl.router.longest import LONGEST, choose_longest

__all__ = [
    "LEAST_LOADED",
    "LONGEST",
    "PREFIX",
    "AibrixRouter",
    "Choice",
    "Constants",
    "Standing",
    "choose_aibrix",
    "choose_longest",
]
