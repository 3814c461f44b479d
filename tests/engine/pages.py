"""Pages of metrics made by hand."""

from __future__ import annotations

from kvctl.engine import EngineState, Scrape, engine_states, parse_scrape

GAUGE = "vllm:engine_sleep_state"
COUNT = "vllm:sleep_mode_operation_duration_seconds_count"
CREATED = "vllm:sleep_mode_operation_duration_seconds_created"
IN_FLIGHT = "vllm:sleep_mode_operations_in_flight"

AWAKE, LEVEL_1, LEVEL_2, NEITHER = (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 0)


def gauge(rows: tuple[float, ...], *, rank: int = 0, model: str = "tiny") -> str:
    names = ("awake", "weights_offloaded", "discard_all")
    labels = f'engine="{rank}",model_name="{model}"'
    return "".join(
        f'{GAUGE}{{{labels},sleep_state="{name}"}} {value}\n'
        for name, value in zip(names, rows, strict=False)
    )


def operations(name: str = COUNT, **values: float) -> str:
    """A series per operation; `release` stands for its long name."""
    long = {"release": "release_kv_cache_memory"}
    return "".join(
        f'{name}{{operation="{long.get(key, key)}"}} {value!r}\n' for key, value in values.items()
    )


def page(rows: tuple[float, ...] = AWAKE, *, started: float = 1.7e9, **counts: float) -> Scrape:
    """A page of rank 0 with these counts of finished operations."""
    start = f"process_start_time_seconds {started!r}\n"
    return parse_scrape(gauge(rows) + operations(**counts) + start)


def state_of(
    scrape: Scrape,
    previous: EngineState | None = None,
    *,
    is_sleeping: bool | None = None,
    is_paused: bool | None = None,
    at: float = 100.0,
) -> EngineState:
    """The state of rank 0."""
    before = {0: previous} if previous is not None else None
    states = engine_states(
        scrape, previous=before, is_sleeping=is_sleeping, is_paused=is_paused, at=at
    )
    return states[0]
