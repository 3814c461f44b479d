"""One pod's engine: controlled over HTTP, observed through its metrics."""

from kvctl.engine.answers import ControlAnswer, Usage
from kvctl.engine.auth import api_key
from kvctl.engine.client import EngineClient, EngineKind
from kvctl.engine.errors import (
    DevModeOff,
    EngineError,
    NotAnEngine,
    Refused,
    ScrapeError,
    Unauthorized,
    Unreachable,
)
from kvctl.engine.probe import PodState, probe_state
from kvctl.engine.scrape import Operations, RankScrape, Scrape, parse_scrape
from kvctl.engine.state import EngineState, engine_states, unknown_states
from kvctl.engine.verdict import WIPED, State

__all__ = [
    "WIPED",
    "ControlAnswer",
    "DevModeOff",
    "EngineClient",
    "EngineError",
    "EngineKind",
    "EngineState",
    "NotAnEngine",
    "Operations",
    "PodState",
    "RankScrape",
    "Refused",
    "Scrape",
    "ScrapeError",
    "State",
    "Unauthorized",
    "Unreachable",
    "Usage",
    "api_key",
    "engine_states",
    "parse_scrape",
    "probe_state",
    "unknown_states",
]
