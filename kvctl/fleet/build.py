"""A pod's fields -> `Pod`: every value checked, what is not told derived from what is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar, cast, get_args

from kvctl.errors import UsageError
from kvctl.fleet import endpoint
from kvctl.fleet.endpoint import Endpoint
from kvctl.fleet.fields import check_name
from kvctl.fleet.pod import API_PORTS, EVENTS_PORT, REPLAY_PORT, EngineKind, Pod, PodStream, Role
from kvctl.fleet.wording import nearest, quoted

MAX_RANKS = 1024
"""Most DP ranks of one pod."""

_NONE = "none"
_ANY = "*"

_T = TypeVar("_T")


def build_pod(name: str, fields: Mapping[str, str], *, model: str | None = None) -> Pod:
    """The pod that ``fields`` (keys of `POD_KEYS`) describe; ``model`` where they name none.

    Raises `UsageError` that names the pod, the key and what is expected.
    """
    check_name(name)
    return _Builder(name, fields).build(model)


class _Builder:
    """The fields of one pod, each checked by itself, and the rules that join them."""

    def __init__(self, name: str, fields: Mapping[str, str]) -> None:
        self.name = name
        self.fields = fields
        self.assumed: set[Role] = set()
        self.engine = self._checked("engine", _engine) or "vllm"
        self.dp = self._checked("dp", _ranks)
        self.api = self._checked("api", endpoint.parse_api, absent=_NONE)
        self.events = self._checked("events", _endpoints) or ()
        self.replay = self._checked("replay", _endpoints, absent=_NONE) or ()
        bind = self._checked("bind", _bool)
        wildcards = [at for at in self.events if at.is_wildcard]
        if bind is False and wildcards:
            raise self._fault("bind", f"{wildcards[0]} can only be bound, not connected to")
        if wildcards and len(wildcards) < len(self.events):
            raise self._fault("events", "either all of them are bound or none")
        self.bind = bool(bind or wildcards)
        self.host = self._checked("host", endpoint.parse_host) or self._known_host()

    def build(self, model: str | None) -> Pod:
        events = self._event_endpoints()
        replay = self._replay_endpoints(len(events))
        api = self._api()
        self._check_ports(events, replay, api)
        streams = (
            PodStream(rank, str(at), str(replay[rank]) if replay else None)
            for rank, at in enumerate(events)
        )
        return Pod(
            self.name,
            tuple(streams),
            api,
            self._checked("model", _model) or model,
            self.bind,
            self.engine,
            frozenset(self.assumed),
        )

    def _known_host(self) -> str:
        """The host whose usual ports may be assumed: one known by a usual port itself.

        Several engines may share a host, each with ports of its own. The usual port there is then
        another pod's, and a reset sent to it wipes the wrong cache.
        """
        if self.events and self.events[0].port != EVENTS_PORT:
            return ""
        if self.events and not self.bind:
            return self.events[0].host
        if self.api and endpoint.api_port(self.api) == API_PORTS[self.engine]:
            return endpoint.api_host(self.api)
        return ""

    def _event_endpoints(self) -> list[Endpoint]:
        told = self.events
        if not told:
            if not (self.host or self.bind):
                why = ": the api is not at the usual port" if self.api else ""
                raise self._fault(
                    "events", f"nothing says where they are{why}", "add events=… or host=…"
                )
            self.assumed.add("events")
            told = (Endpoint("tcp", _ANY if self.bind else self.host, EVENTS_PORT),)
        if self.dp is not None and len(told) not in (1, self.dp):
            raise self._fault("events", f"{len(told)} endpoints for dp={self.dp} ranks")
        return self._ranks_of("events", told, self.dp or len(told))

    def _replay_endpoints(self, ranks: int) -> list[Endpoint]:
        if self.fields.get("replay") == _NONE:
            return []
        told = self.replay
        if not told:
            if not self.host:
                return []
            self.assumed.add("replay")
            told = (Endpoint("tcp", self.host, REPLAY_PORT),)
        if any(at.is_wildcard for at in told):
            raise self._fault("replay", "the engine binds it: name the engine's host")
        if len(told) not in (1, ranks):
            raise self._fault("replay", f"{len(told)} endpoints for {ranks} ranks")
        return self._ranks_of("replay", told, ranks)

    def _api(self) -> str | None:
        if self.api or not self.host or self.fields.get("api") == _NONE:
            return self.api
        self.assumed.add("api")
        return f"http://{endpoint.bracketed(self.host)}:{API_PORTS[self.engine]}"

    def _ranks_of(self, key: Role, told: tuple[Endpoint, ...], ranks: int) -> list[Endpoint]:
        if len(told) == ranks:
            return list(told)
        try:
            return [told[0].at_rank(rank) for rank in range(ranks)]
        except ValueError as error:
            raise self._fault(key, error) from None

    def _check_ports(self, events: list[Endpoint], replay: list[Endpoint], api: str | None) -> None:
        """Refuse two things at one address, as ranks at port + rank easily come to be."""
        taken: dict[tuple[str, int], str] = {}
        for key, what, address in _addresses(events, replay, api):
            if address not in taken:
                taken[address] = what
                continue
            where = f"{endpoint.bracketed(address[0])}:{address[1]}"
            remedy = f"give {key}= with ports of its own"
            if key == "replay" and "replay" in self.assumed:
                remedy += ", or replay=none"
            raise self._fault(key, f"{what} would be at {where}, {taken[address]} too", remedy)

    def _checked(
        self, key: str, parse: Callable[[str], _T], *, absent: str | None = None
    ) -> _T | None:
        text = self.fields.get(key)
        if text is None or text == absent:
            return None
        try:
            return parse(text)
        except ValueError as error:
            raise self._fault(key, error) from None

    def _fault(self, key: str, reason: object, remedy: str = "") -> UsageError:
        return UsageError(f"pod {self.name}: {key}: {reason}", remedy=remedy)


def _addresses(
    events: list[Endpoint], replay: list[Endpoint], api: str | None
) -> Iterator[tuple[Role, str, tuple[str, int]]]:
    """Key, name and address of everything a pod has."""
    roles: tuple[tuple[Role, list[Endpoint]], ...] = (("events", events), ("replay", replay))
    for key, endpoints in roles:
        for rank, at in enumerate(endpoints):
            yield key, f"rank {rank}'s {key}", (at.host.lower() or at.path, at.port)
    if api:
        yield "api", "the api", (endpoint.api_host(api).lower(), endpoint.api_port(api))


def _endpoints(text: str) -> tuple[Endpoint, ...]:
    return tuple(endpoint.parse_endpoint(part.strip()) for part in text.split("|"))


def _engine(text: str) -> EngineKind:
    kinds = get_args(EngineKind)
    if text not in kinds:
        raise ValueError(f"{quoted(text)} is no engine ({nearest(text, kinds)})")
    return cast(EngineKind, text)


def _model(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"{quoted(text)} has control characters")
    return text


def _ranks(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text) or not 1 <= int(text) <= MAX_RANKS:
        raise ValueError(f"the number of DP ranks is 1 to {MAX_RANKS}, not {quoted(text)}")
    return int(text)


def _bool(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"it is true or false, not {quoted(text)}")
    return text == "true"
