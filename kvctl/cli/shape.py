"""How the JSON of a command is described: fields, their types, what they mean."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Field:
    """One field of a JSON object.

    ``type`` is `text`, `int`, `float`, `bool`, `any`, `object`, or one of these behind `list of`
    or `map of` (by name); `or null` may follow. ``fields`` are those of the object, or of each in
    a list or map. An ``optional`` field is absent where there is nothing to tell.
    """

    name: str
    type: str
    meaning: str = ""
    fields: tuple[Field, ...] = ()
    optional: bool = False


@dataclass(frozen=True)
class Shape:
    """What one command prints: ``what`` says how many of these objects, and when."""

    what: str
    fields: tuple[Field, ...]


def described(name: str, type_: str, meaning: str = "", *fields: Field) -> Field:
    """A field; a `?` behind the name makes it optional."""
    return Field(name.rstrip("?"), type_, meaning, fields, name.endswith("?"))


def lines_of(shape: Shape) -> Iterator[tuple[str, str, str]]:
    """(indented name, type, meaning) of every field, those inside of others behind them."""
    return _lines(shape.fields, 0)


def _lines(fields: tuple[Field, ...], depth: int) -> Iterator[tuple[str, str, str]]:
    for field in fields:
        name = "  " * depth + field.name + ("?" if field.optional else "")
        yield name, field.type, field.meaning
        yield from _lines(field.fields, depth + 1)
