"""Words of a command line -> values, without the pydantic that typer would load for it."""

from __future__ import annotations

import math
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer

_PLAIN = {str: "NAME", int: "N", float: "N", Path: "FILE", bool: ""}
"""What is made here, and what a help calls it."""


def use_plain_coercion(parameter: Any) -> PlainCoercion | None:
    """Have a parameter of a command take its values through `PlainCoercion`, which it returns.

    typer makes a parameter's values with pydantic, whose import takes as long as all the rest of
    a short command. A parameter that it is not for is left to typer: None.
    """
    descriptor = getattr(parameter, "type_descriptor", None)
    if descriptor is None or not hasattr(parameter, "get_runtime_param"):
        return None
    annotation = descriptor.annotation
    kind = get_args(annotation)[0] if get_origin(annotation) is list else annotation
    if not (kind in _PLAIN or get_origin(kind) is Literal or _is_enum(kind)):
        return None
    plain = PlainCoercion(kind, parameter.min, parameter.max)
    parameter.get_runtime_param = lambda: plain
    return plain


class PlainCoercion:
    """Makes the values of one parameter: text, numbers in a range, paths, one of some words."""

    def __init__(self, kind: Any, least: float | None, most: float | None) -> None:
        self._kind = kind
        self._least = least
        self._most = most
        self._words: dict[str, Any] = {}
        if get_origin(kind) is Literal:
            self._words = {str(value): value for value in get_args(kind)}
        elif _is_enum(kind):
            self._words = {str(value.value): value for value in kind}

    @property
    def metavar(self) -> str:
        """What stands behind the option in its help."""
        return "|".join(self._words) or _PLAIN[self._kind]

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """What the words are. Raises typer's `BadParameter`, with a ``remedy`` if there is one."""
        several = param.nargs == -1 or getattr(param, "multiple", False)
        if value is None:
            return () if several else None
        try:
            return tuple(self._one(each) for each in value) if several else self._one(value)
        except _UnfitError as unfit:
            error: Any = typer.BadParameter(str(unfit), ctx=ctx, param=param)
            error.remedy = unfit.remedy
            raise error from None

    def _one(self, value: Any) -> Any:
        if self._words:
            return self._word(value)
        if self._kind in (int, float):
            return self._number(value)
        return value if isinstance(value, self._kind) else self._kind(value)

    def _word(self, value: Any) -> Any:
        word = str(value.value if isinstance(value, Enum) else value)
        if word in self._words:
            return self._words[word]
        from kvctl.fleet.wording import close_to

        raise _UnfitError(
            f"{word!r} is not one of {', '.join(self._words)}", close_to(word, self._words)
        )

    def _number(self, value: Any) -> Any:
        whole = self._kind is int
        try:
            number = self._kind(value)
        except (ValueError, OverflowError):
            raise _UnfitError(f"{value!r} is not a {'whole ' if whole else ''}number") from None
        if not math.isfinite(number):
            raise _UnfitError(f"{value!r} is not a number")
        if self._least is not None and number < self._least:
            raise _UnfitError(f"{value} is less than {self._least:g}")
        if self._most is not None and number > self._most:
            raise _UnfitError(f"{value} is more than {self._most:g}")
        return number


class _UnfitError(ValueError):
    """A word that is no value of the parameter."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)
