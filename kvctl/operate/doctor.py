"""Checks of pods and of a fleet, from what was seen of them: a pure function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from kvctl.engine import EngineState, State
from kvctl.operate.examine import PodSeen, StreamSeen
from kvctl.text import plural

SKEW_S = 2.0
BUFFER = 10_000
"""Batches that vLLM's replay buffer holds by default (`buffer_steps`)."""
_SHORT_MINUTES = 10.0
_LONG_ENOUGH_S = 60.0  # a shorter look tells no rate


class Status(StrEnum):
    """What a check came to."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True)
class Check:
    """One check of one pod (of the fleet: pod None), what was found, and what to do about it."""

    pod: str | None
    rank: int | None
    name: str
    status: Status
    detail: str
    remedy: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; what does not apply is absent."""
        told = {
            "pod": self.pod,
            "rank": self.rank,
            "check": self.name,
            "status": self.status.value,
            "detail": self.detail,
            "remedy": self.remedy or None,
        }
        return {name: value for name, value in told.items() if value is not None}


Make: TypeAlias = Callable[..., Check]
"""Makes a check of the pod or stream at hand from what, status, detail and remedy."""


def diagnose(pods: Sequence[PodSeen]) -> list[Check]:
    """Every check of every pod, then those of the fleet."""
    checks = [check for pod in pods for check in _of_pod(pod)]
    return [*checks, *_of_fleet(pods)]


def _of_pod(seen: PodSeen) -> Iterator[Check]:
    name = seen.pod.name

    def check(what: str, status: Status, detail: str, remedy: str = "") -> Check:
        return Check(name, None, what, status, detail, remedy)

    state = seen.state
    if state is None:
        yield check("api", Status.SKIP, "no api is given", "--pod …,api=http://…")
    elif not state.reachable:
        yield check("api", Status.FAIL, state.error or "it does not answer")
    else:
        yield check("api", Status.PASS, "it answers")
        yield _control(check, seen)
        yield _metrics(check, state.states)
        yield _clock(check, seen.skew)
        yield from _states(seen)
    for rank, stream in sorted(seen.streams.items()):
        engine = next((e for e in state.states if e.rank == rank), None) if state else None
        yield from _of_stream(name, rank, stream, engine, seen.entries.get(rank, 0))


def _control(check: Make, seen: PodSeen) -> Check:
    if seen.control is None:
        return check("control", Status.PASS, "reset, sleep and wake are there")
    return check(
        "control",
        Status.WARN,
        f"reset and sleep are not: {seen.control}",
        "start vLLM with VLLM_SERVER_DEV_MODE=1, where nobody else reaches its port",
    )


def _metrics(check: Make, states: Sequence[EngineState]) -> Check:
    gauge = all(any("sleep_state" in name for name in state.evidence) for state in states)
    counted = all(state.prefix_queries is not None for state in states)
    if gauge and counted:
        return check("metrics", Status.PASS, "engine_sleep_state and prefix-cache counters")
    missing = "engine_sleep_state" if not gauge else "prefix-cache counters"
    return check(
        "metrics",
        Status.WARN,
        f"no {missing}: reconcile has less to go by",
        "vLLM 0.11.1 or newer, and its prefix cache on",
    )


def _clock(check: Make, skew: float | None) -> Check:
    if skew is None:
        return check("clock", Status.SKIP, "its answers bear no date")
    if abs(skew) <= SKEW_S:
        return check("clock", Status.PASS, f"within {SKEW_S:g} s of ours")
    return check(
        "clock",
        Status.WARN,
        f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} ours",
        "set both by NTP: doubts of reconcile are settled by times",
    )


def _states(seen: PodSeen) -> Iterator[Check]:
    for state in seen.state.states if seen.state is not None else ():
        name, rank = seen.pod.name, state.rank
        word = state.verdict.value
        if state.verdict is State.HALTED:
            yield Check(
                name, rank, "state", Status.FAIL,
                "halted: its gauge says awake, and it is paused; its cache is probably wiped",
                "POST /resume, or purge it: kvctl reconcile --purge-suspect",
            )  # fmt: skip
        elif state.verdict in (State.UNKNOWN, State.SUSPECT):
            yield Check(name, rank, "state", Status.WARN, f"{word}: {state.reason}", "kvctl pods")
        else:
            yield Check(name, rank, "state", Status.PASS, word)


def _of_stream(
    pod: str, rank: int, stream: StreamSeen, engine: EngineState | None, entries: int
) -> Iterator[Check]:
    def check(what: str, status: Status, detail: str, remedy: str = "") -> Check:
        return Check(pod, rank, what, status, detail, remedy)

    status = stream.status
    if status is None or not status.connected:
        where = "" if status is None else f" at {status.endpoint}"
        yield check(
            "events", Status.FAIL, f"no connection{where}",
            '--kv-events-config with "enable_kv_cache_events": true, and the port open',
        )  # fmt: skip
        return
    if not stream.batches:
        yield check(
            "events", Status.WARN, "connected, and nothing was published yet",
            "send it a prompt; is the prefix cache on?",
        )  # fmt: skip
    elif stream.undecodable:
        yield check(
            "events", Status.FAIL, f"a batch cannot be decoded: {stream.undecodable}",
            "a newer kvctl may; kvctl tail --capture keeps it",
        )  # fmt: skip
    else:
        yield check("events", Status.PASS, f"{plural(stream.batches, 'batch')} seen")
    yield _replay(check, stream)
    if not stream.batches:
        return
    if stream.maps:
        yield check(
            "aibrix", Status.WARN,
            "its events are maps (vLLM 0.24+): AIBrix's decoder takes arrays only",
            "AIBrix then learns nothing of this pod: its log tells of a reconnect for ever",
        )  # fmt: skip
    else:
        yield check("aibrix", Status.PASS, "its events are arrays, which AIBrix decodes")
    yield _hash_form(check, stream)
    yield _hashes(check, stream)
    yield _capacity(check, engine, entries)


def _replay(check: Make, stream: StreamSeen) -> Check:
    state = stream.status.replay if stream.status is not None else "none"
    if state == "none":
        return check(
            "replay", Status.WARN, "no replay endpoint: what is lost stays lost",
            '"replay_endpoint": "tcp://*:5558" in --kv-events-config',
        )  # fmt: skip
    if state != "ok":
        return check("replay", Status.FAIL, f"the replay is {state}", "is its port open?")
    span = stream.last_ts - stream.first_ts
    if span < _LONG_ENOUGH_S:
        return check("replay", Status.PASS, "it answers")
    per_minute = stream.batches / span * 60
    minutes = BUFFER / per_minute if per_minute else 0.0
    told = f"it answers; {BUFFER:,} batches last {minutes:,.0f} min at {per_minute:,.0f} a minute"
    if minutes < _SHORT_MINUTES:
        return check(
            "replay", Status.WARN, told, '"buffer_steps" in --kv-events-config makes it longer'
        )
    return check("replay", Status.PASS, told)


def _hash_form(check: Make, stream: StreamSeen) -> Check:
    forms = ", ".join(sorted(stream.hash_forms)) or "none seen"
    if len(stream.hash_forms) > 1:
        return check("hash form", Status.FAIL, f"{forms} on one stream", "two engines on one port?")
    return check("hash form", Status.PASS, forms)


def _hashes(check: Make, stream: StreamSeen) -> Check:
    hashes = stream.hashes
    if not hashes.checked:
        return check("hashes", Status.SKIP, "no block was seen that can be recomputed")
    if not hashes.wrong:
        return check(
            "hashes", Status.PASS, f"{plural(hashes.checked, 'block')} follow from their tokens"
        )
    return check(
        "hashes",
        Status.WARN,
        f"{hashes.wrong} of {plural(hashes.checked, 'block')} do not follow from their tokens",
        "right only for vLLM 0.29+ with sha256, its default; there it means other settings",
    )


def _capacity(check: Make, engine: EngineState | None, entries: int) -> Check:
    blocks = engine.num_gpu_blocks if engine is not None else None
    if blocks is None:
        return check("capacity", Status.SKIP, "its metrics tell no num_gpu_blocks")
    most = blocks - 1
    told = f"{entries:,} of {most:,} blocks"
    if entries <= most:
        return check("capacity", Status.PASS, told)
    return check(
        "capacity",
        Status.FAIL,
        f"{told}: more than the engine can hold",
        "--removals first, if it reports the last copy's leaving only; else removes were lost",
    )


def _of_fleet(pods: Sequence[PodSeen]) -> Iterator[Check]:
    if len(pods) < 2:
        return
    sizes = {
        pod.pod.name: _in_words({size for s in pod.streams.values() for size in s.block_sizes})
        for pod in pods
    }
    told = {each for each in sizes.values() if each}
    if len(told) > 1:
        which = "; ".join(f"{name} {each}" for name, each in sizes.items() if each)
        yield Check(
            None, None, "block sizes", Status.FAIL, f"they differ: {which}",
            "pods behind one router need one block size: nothing matches across them",
        )  # fmt: skip
    elif told:
        yield Check(None, None, "block sizes", Status.PASS, f"all have {told.pop()}")
    shared, differing = 0, 0
    names: dict[bytes, str] = {}
    for pod in pods:
        for content, block_hash in pod.contents.items():
            if content in names:
                shared += 1
                differing += names[content] != block_hash
            names.setdefault(content, block_hash)
    if not shared:
        yield Check(
            None, None, "hashes agree", Status.SKIP,
            "no two pods hold the same block: send both one prompt",
        )  # fmt: skip
    elif differing:
        yield Check(
            None, None, "hashes agree", Status.WARN,
            f"{differing} of {shared} shared blocks have other hashes on other pods",
            "the same PYTHONHASHSEED and hash algorithm everywhere, if the router goes by hashes",
        )  # fmt: skip
    else:
        yield Check(
            None, None, "hashes agree", Status.PASS, f"on all {plural(shared, 'shared block')}"
        )


def _in_words(sizes: set[int]) -> str:
    return " and ".join(map(str, sorted(sizes)))
