"""The whole experiment: every cell that was asked for, and what the cells prove together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from kvctl.events import Record
from kvctl.fleet import Pod, PodStream
from kvctl.reproduce.cell import run_cell
from kvctl.reproduce.engines import Engine
from kvctl.reproduce.gatewaycell import run_gateway_cell
from kvctl.reproduce.scenario import HANDLERS, CellResult, Delivery, Handler, Scenario, Trigger
from kvctl.sim import SimConfig, SimPod

_LORA = "adapter"
_WORKERS = 6


@dataclass(frozen=True)
class Choices:
    """Which cells, and how. Empty means all of a kind."""

    triggers: Sequence[Trigger] = ()
    deliveries: Sequence[Delivery] = ()
    handlers: Sequence[Handler] = ()
    aibrix_scope: bool = False
    router: str = "aibrix"
    seed: int = 0

    def scenarios(self, *, real: bool = False) -> list[Scenario]:
        """The cells; on real engines only what these can be made to do."""
        return [
            Scenario(trigger, delivery, handler, self.aibrix_scope)
            for trigger in self.triggers or tuple(Trigger)
            if trigger.real or not real
            for delivery in self.deliveries or tuple(Delivery)
            for handler in self.handlers or HANDLERS
        ]


@dataclass(frozen=True)
class Matrix:
    """The cells' results, in the order of the scenarios; ``blind`` what a wrong purge at level 0
    came to, where that was run."""

    results: tuple[CellResult, ...]
    blind: CellResult | None = None
    unreal: tuple[Trigger, ...] = field(default=())

    @property
    def reproduced(self) -> bool:
        """Whether some cell shows the bug."""
        return any(each.is_bug for each in self.results)

    def surprises(self) -> list[str]:
        """What is not as it is known to be, in sentences.

        Known is: without a fix, every wipe misleads the router; the full handler cures each that
        somebody calls for, and a restart; the controls are well under any handler.
        """
        found = []
        for each in self.results:
            scenario = each.scenario
            if scenario.aibrix_scope:
                continue
            trigger, handler = scenario.trigger, scenario.handler
            if not trigger.wipes and each.is_bug and handler is not Handler.BLIND:
                found.append(f"{scenario.name}: a control shows the bug")
            elif trigger.wipes and handler is Handler.NOOP and not each.is_bug:
                found.append(f"{scenario.name}: no bug without any fix")
            elif (
                handler is Handler.FULL
                and each.is_bug
                and (trigger.driven or trigger is Trigger.RESTART)
            ):
                found.append(f"{scenario.name}: the bug in spite of the full handler")
        return found

    def to_dict(self) -> dict[str, Any]:
        """`reproduce-2287 -o json`."""
        blind = {} if self.blind is None else {"wrong_purge": self.blind.to_dict()}
        return {
            "scenarios": [each.to_dict() for each in self.results],
            "reproduced": self.reproduced,
            **blind,
        }


def run_simulated(
    choices: Choices,
    on_done: Callable[[CellResult], None] = lambda _result: None,
    keep: Callable[[Record], None] = lambda _record: None,
    *,
    flush: str | None = None,
) -> Matrix:
    """Run the cells on simulated engines, a fresh pair for each, some at a time.

    ``flush`` makes the engines send events in another way than vLLM does (`kvctl.sim`): the
    matrix must change with it.
    """
    scenarios = choices.scenarios()
    wants_blind = not (choices.triggers or choices.handlers or choices.aibrix_scope)
    if wants_blind:
        scenarios.append(Scenario(Trigger.SLEEP_0, Delivery.DELIVERED, Handler.BLIND))
    results: dict[Scenario, CellResult] = {}

    def run(scenario: Scenario) -> CellResult:
        with simulated_pair(scenario.aibrix_scope, flush) as (a, b):
            lora = _LORA if scenario.aibrix_scope else None
            return run_cell(
                scenario, a, b, router=choices.router, seed=choices.seed, lora=lora, keep=keep
            )

    workers = ThreadPoolExecutor(_WORKERS)
    try:
        futures: dict[Future[CellResult], Scenario] = {
            workers.submit(run, scenario): scenario for scenario in scenarios
        }
        for future in as_completed(futures):
            results[futures[future]] = future.result()
            on_done(future.result())
    finally:
        workers.shutdown(wait=True, cancel_futures=True)
    blind = results[scenarios[-1]] if wants_blind else None
    shown = scenarios[:-1] if wants_blind else scenarios
    return Matrix(tuple(results[scenario] for scenario in shown), blind)


@dataclass(frozen=True)
class RealGateway:
    """A gateway in front of both pods, and the seconds it takes it to digest events, at most."""

    url: str
    settle: float = 2.0


def run_real(
    choices: Choices,
    pods: tuple[Pod, Pod],
    on_done: Callable[[CellResult], None] = lambda _result: None,
    keep: Callable[[Record], None] = lambda _record: None,
    *,
    api_key: str | None = None,
    gateway: RealGateway | None = None,
) -> Matrix:
    """Run the cells on two engines that are there, one after the other, each with a new prefix.

    With a ``gateway`` this is the router, and no clear can be lost on purpose.
    """
    a, b = (Engine(pod, api_key=api_key) for pod in pods)
    if gateway is not None:
        choices = replace(choices, deliveries=(Delivery.DELIVERED,), handlers=(Handler.GATEWAY,))
    results = []
    for number, scenario in enumerate(choices.scenarios(real=True)):
        seed = choices.seed * 10_000 + number
        for engine in (a, b):
            engine.client.reset()
        try:
            if gateway is None:
                result = run_cell(
                    scenario, a, b, router=choices.router, seed=seed, keep=keep, highest_token=500
                )
            else:
                headers = {"Authorization": f"Bearer {api_key}"} if api_key else None
                result = run_gateway_cell(
                    scenario,
                    a,
                    b,
                    gateway.url,
                    seed=seed,
                    settle=gateway.settle,
                    highest_token=500,
                    headers=headers,
                )
        finally:
            if scenario.trigger.sleep_level is not None:
                a.wake()
        on_done(result)
        results.append(result)
    unreal = tuple(trigger for trigger in choices.triggers or tuple(Trigger) if not trigger.real)
    return Matrix(tuple(results), None, unreal)


@contextmanager
def simulated_pair(lora: bool, flush: str | None = None) -> Iterator[tuple[Engine, Engine]]:
    """Two simulated pods on free ports; gone at the end."""
    loras = (_LORA,) if lora else ()
    with (
        SimPod(SimConfig(name="pod-a", loras=loras)) as a,
        SimPod(SimConfig(name="pod-b", loras=loras)) as b,
    ):
        engines = []
        for pod in (a, b):
            if flush is not None:
                pod.engine.set_flush(flush)  # type: ignore[arg-type]
            stream = PodStream(0, pod.events[0], pod.replay[0])
            known = Pod(pod.name, (stream,), pod.api, pod.config.model)
            engines.append(Engine(known, _LORA if lora else None))
        yield engines[0], engines[1]
