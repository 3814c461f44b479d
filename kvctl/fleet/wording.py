"""How refused words are shown: quoted on one line, with the nearest right one."""

from __future__ import annotations

from collections.abc import Collection, Iterable

_LONGEST = 80
_MOST = 20
_CLOSE = 3
_EQUAL = 0.02


def quoted(text: str) -> str:
    """The text in quotes, control characters escaped, cut where it is very long."""
    return repr(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…")


def nearest(word: str, choices: Collection[str]) -> str:
    """A remedy: the choices that were probably meant, or else what there is."""
    if close := close_to(word, choices):
        return close
    shown = sorted(choices)[:_MOST]
    more = f" and {len(choices) - _MOST} more" if len(choices) > _MOST else ""
    return f"known: {', '.join(shown)}{more}"


def close_to(word: str, choices: Iterable[str]) -> str:
    """`did you mean pod-a or pod-b?`, empty where nothing is near; the nearest, and its equals."""
    import difflib

    matcher = difflib.SequenceMatcher(b=word)
    found = difflib.get_close_matches(word, list(choices), n=_CLOSE, cutoff=0.5)
    if not found:
        return ""
    ratios = []
    for each in found:
        matcher.set_seq1(each)
        ratios.append(matcher.ratio())
    near = [each for each, ratio in zip(found, ratios, strict=True) if ratio >= ratios[0] - _EQUAL]
    *others, last = sorted(near)
    return f"did you mean {', '.join(others)} or {last}?" if others else f"did you mean {last}?"
