"""HTML and SVG text in which nothing is markup that was not made so here."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TypeAlias

from kvctl.text import printable


class Markup(str):
    """Text that is markup already. Any other string is escaped when it gets into an element."""

    __slots__ = ()


Child: TypeAlias = "str | Markup | Iterable[Markup] | None"
Value: TypeAlias = "str | int | float | bool | None"

# Elements of HTML that have no end.
_VOID = {"meta", "br", "hr"}


def tag(name: str, /, *children: Child, **attributes: Value) -> Markup:
    """An element. Underscores in the names of attributes stand for hyphens, one at the end for
    nothing (`class_`); what is None or False is left out, True has no value."""
    begin = f"<{name}{''.join(_attribute(*each) for each in attributes.items())}>"
    if name in _VOID:
        return Markup(begin)
    return Markup(f"{begin}{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    """Elements and texts one after the other."""
    return Markup("".join(_content(child) for child in children))


def text(content: str) -> Markup:
    """Text made harmless: what a terminal or a browser could act on, or hide, spelled out."""
    return Markup(escape(printable(content), quote=True))


def number(value: float) -> str:
    """A coordinate: at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def _content(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return text(child)
    return "".join(child)


def _attribute(name: str, value: Value) -> str:
    name = name.removesuffix("_").replace("_", "-")
    if value is None or value is False:
        return ""
    if value is True:
        return f" {name}"
    shown = number(value) if isinstance(value, float) else str(value)
    return f' {name}="{text(shown)}"'
