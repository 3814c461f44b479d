"""Every command of kvctl, with its options and its examples, as the command line is built."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import typer

from kvctl.cli.commands import COMMANDS
from kvctl.cli.group import load_command
from kvctl.cli.main import app


@dataclass(frozen=True)
class Told:
    """A command: its words, empty for `kvctl` itself, and click's object for it."""

    words: tuple[str, ...]
    command: Any

    @property
    def name(self) -> str:
        return " ".join(("kvctl", *self.words))

    @property
    def options(self) -> list[Any]:
        return [each for each in self.command.params if each.param_type_name == "option"]

    @property
    def examples(self) -> tuple[str, ...]:
        return self.command.examples


def commands() -> Iterator[Told]:
    """All of them, the groups too."""
    yield Told((), typer.main.get_command(app))
    for entry in COMMANDS:
        loaded = load_command(entry)
        yield Told((entry.name,), loaded)
        for name, command in getattr(loaded, "commands", {}).items():
            yield Told((entry.name, name), command)
