"""What an engine's command line tells of where its events are."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvctl.fleet.endpoint import Endpoint, parse_endpoint

_EVENTS = "--kv-events-config"
_ENGINES = ("vllm", "sglang")


@dataclass(frozen=True)
class EngineWords:
    """The words of one container's command line, as far as they concern kvctl.

    ``options`` has every option by its name, an underscore written as a dash; ``events`` is the
    `--kv-events-config`, None where there is none.
    """

    engine: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    events: Mapping[str, Any] | None = None

    def number(self, *names: str) -> int | None:
        """The value of the first of these options that is a positive number."""
        found = (self.options.get(name, "") for name in names)
        return next((int(text) for text in found if re.fullmatch(r"[1-9][0-9]{0,5}", text)), None)

    def endpoint(self, key: str) -> Endpoint | None:
        """An endpoint of the events' configuration; None where it is absent, or not readable."""
        try:
            return parse_endpoint(str((self.events or {})[key]))
        except (KeyError, ValueError):
            return None

    @property
    def silent(self) -> bool:
        """Whether the configuration keeps the events to itself (vLLM: nothing is published)."""
        if self.events is None or self.engine == "sglang":
            return False
        enabled = self.events.get("enable_kv_cache_events", False)
        return not enabled or self.events.get("publisher", "zmq") != "zmq"


def read_words(words: Sequence[str]) -> EngineWords:
    """Read a command line, be it words of its own or a line that a shell gets with `-c`."""
    found = list(_split(words))
    options = dict(_options(found))
    called = " ".join(itertools.takewhile(lambda word: not word.startswith("--"), found))
    engine = next((each for each in _ENGINES if each in called), None)
    return EngineWords(engine, options, _events(options))


def engine_of(containers: Sequence[Sequence[str]]) -> EngineWords:
    """The engine's words among those of a pod's containers; without any where none is known.

    A sidecar has a `--port` as well: the engine is the container that configures events, or else
    the one that names an engine.
    """
    read = [read_words(words) for words in containers]
    for words in read:
        if words.events is not None:
            return words
    return next((words for words in read if words.engine is not None), EngineWords())


def _split(words: Sequence[str]) -> Iterator[str]:
    for word in words:
        if "--" in word and re.search(r"\s", word) and not word.startswith(("-", "{")):
            try:
                yield from shlex.split(word.replace("\\\n", " "), comments=True)
                continue
            except ValueError:
                pass  # an open quote: no line of a shell
        yield word


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for word, following in itertools.pairwise([*words, "-"]):
        if not word.startswith("-"):
            continue
        name, equals, value = word.partition("=")
        if not equals:
            value = "" if following.startswith("-") else following
        head, dot, rest = name.partition(".")
        yield head.replace("_", "-") + dot + rest, value


def _events(options: Mapping[str, str]) -> Mapping[str, Any] | None:
    """The events' configuration, written as JSON or key by key (`--kv-events-config.endpoint`)."""
    found: dict[str, Any] = {}
    if _EVENTS in options:
        try:
            whole = json.loads(options[_EVENTS])
        except (ValueError, RecursionError):
            return None
        if isinstance(whole, dict):
            found |= whole
    parts = {
        name.removeprefix(_EVENTS + "."): value
        for name, value in options.items()
        if name.startswith(_EVENTS + ".")
    }
    found |= {key: False if value.lower() == "false" else value for key, value in parts.items()}
    return found or None
