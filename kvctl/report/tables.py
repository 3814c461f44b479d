"""Tables of the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvctl.report.markup import Child, Markup, tag


def table(
    caption: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[Child]],
    *,
    right: Iterable[str] = (),
    nowrap: Iterable[str] = (),
    wide: Iterable[str] = (),
    class_: str | None = None,
) -> Markup:
    """A table; the first cell of a row names it. ``right`` aligns columns of numbers, ``nowrap``
    keeps the cells of a column in a line, ``wide`` gives it room."""
    kinds_of = {
        **dict.fromkeys(right, "n"),
        **dict.fromkeys(nowrap, "when"),
        **dict.fromkeys(wide, "wide"),
    }
    kinds = [kinds_of.get(head) for head in heads]
    return tag(
        "table",
        tag("caption", caption),
        tag(
            "thead",
            tag(
                "tr",
                *(
                    tag("th", head, scope="col", class_="n" if kind == "n" else None)
                    for head, kind in zip(heads, kinds, strict=True)
                ),
            ),
        ),
        tag("tbody", (_row(row, kinds) for row in rows)),
        class_=class_,
    )


def scrolled(label: str, *content: Child) -> Markup:
    """What may be wider than the screen: it scrolls by itself, by the keyboard as well."""
    return tag("div", *content, class_="scroll", role="region", aria_label=label, tabindex=0)


def _row(row: Sequence[Child], kinds: Sequence[str | None]) -> Markup:
    first, *others = zip(row, kinds, strict=True)
    return tag(
        "tr",
        tag("th", first[0], scope="row", class_=first[1]),
        *(tag("td", cell, class_=kind) for cell, kind in others),
    )
