"""What the shells' completion scripts ask: the words that a command line can go on with."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

ASKED = "_KVCTL_COMPLETE"
"""The variable by which a script asks: it names the shell."""

QUOTE = "_KVCTL_QUOTE"
"""The quote that is open at the cursor, where the script knows."""

PATIENCE_S = 3.0
"""Whoever presses a key does not wait longer. Only Kubernetes takes time to answer."""

# A word that ends so goes on.
_GOES_ON = ("/", "=", ":", ",")
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]")
_BROKEN = re.compile(r"""\\.|'[^']*(?:'|$)|"(?:\\.|[^"\\])*(?:"|$)|[^\s'"\\]+|\s+|\\$""", re.DOTALL)


@dataclass(frozen=True)
class Candidate:
    """A word that may stand at the cursor, and a line about it."""

    value: str
    about: str = ""


def answer(root: Any, arguments: Sequence[str]) -> int:
    """Print what the script of the shell asks for; nothing at all where anything is wrong.

    bash hands over its line up to the cursor, and the word that it would replace; zsh and fish
    the words behind `kvctl`, the last one unfinished.
    """
    shell = os.environ[ASKED]
    try:
        signal.signal(signal.SIGALRM, _give_up)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
        if shell == "bash":
            lines = list(_for_bash(root, *arguments))
        elif shell == "zsh":
            lines = list(_for_zsh(root, arguments))
        else:
            lines = list(_for_fish(root, arguments))
        signal.setitimer(signal.ITIMER_REAL, 0)
        for line in lines:
            print(line)
    except Exception:
        return 1
    return 0


def candidates(root: Any, before: Sequence[str], word: str) -> list[Candidate]:
    """The words that may stand where ``word`` was begun, behind those before it.

    What no terminal shows as it is is left out: nobody could tell what was completed.
    """
    from typer._completion_classes import BashComplete

    # click takes `--name=value` apart, and answers with values.
    option = re.match(r"--[a-z][a-z0-9-]*=", word)
    prefix = option[0] if option else ""
    found = BashComplete(root, {}, "kvctl", ASKED).get_completions(list(before), word)
    seen: dict[str, Candidate] = {}
    for item in found:
        value = str(item.value)
        if value.isprintable() and f"{prefix}{value}".startswith(word):
            about = " ".join(str(item.help or "").split())
            seen.setdefault(value, Candidate(f"{prefix}{value}", about))
    return list(seen.values())


def split_line(line: str) -> tuple[list[str], str, str]:
    """A line of bash up to the cursor: its finished words, the last one as typed, its open quote.

    The last word is empty behind a space.
    """
    raw: list[str] = [""]
    quote = ""
    for token in _BROKEN.findall(line):
        quote = ""
        if token.isspace():
            raw.append("")
            continue
        if token[0] in "'\"" and (len(token) == 1 or token[-1] != token[0]):
            quote = token[0]
        raw[-1] += token
    finished = [_unquoted(each) for each in raw[:-1] if each]
    return finished, raw[-1], quote


def quoted(value: str, quote: str = "") -> str:
    """The value as a shell takes it for itself, within the quote that is open."""
    if quote == "'":
        return value.replace("'", "'\\''")
    if quote == '"':
        return re.sub(r'([\\"$`!])', r"\\\1", value)
    home = "~/" if value.startswith("~/") else ""
    rest = value.removeprefix(home)
    return home + "".join(
        char if _PLAIN.match(char) or ord(char) > 127 else f"\\{char}" for char in rest
    )


def _for_bash(root: Any, line: str, replaced: str) -> Iterable[str]:
    """What bash puts in the place of ``replaced``, which may be a part of a word: it breaks at `:`.

    Each with the space behind it, where the word is done and no quote is open.
    """
    (_, *before), raw, quote = split_line(line)
    word = _unquoted(raw)
    kept = raw[: len(raw) - len(replaced)] if replaced and raw.endswith(replaced) else ""
    if not replaced and raw and raw[-1] in ":=":
        kept = raw
    start = len(_unquoted(kept))
    for each in candidates(root, before, word):
        end = "" if quote or each.value.endswith(_GOES_ON) else " "
        yield quoted(each.value[start:], quote) + end


def _for_zsh(root: Any, arguments: Sequence[str]) -> Iterable[str]:
    """What is put in, what is shown and a line about it, with tabs between."""
    *before, word = arguments
    quote = os.environ.get(QUOTE, "")
    for each in candidates(root, before, word):
        yield f"{quoted(each.value, quote)}\t{each.value}\t{each.about}"


def _for_fish(root: Any, arguments: Sequence[str]) -> Iterable[str]:
    """What fish quotes by itself, and a line about it, with a tab between."""
    *before, word = arguments
    for each in candidates(root, before, _unquoted(word)):
        yield f"{each.value}\t{each.about}" if each.about else each.value


def _unquoted(raw: str) -> str:
    """A word as the command gets it."""
    parts = []
    for token in _BROKEN.findall(raw):
        if token[0] == "'":
            parts.append(token.strip("'"))
        elif token[0] == '"':
            inner = token[1:-1] if len(token) > 1 and token[-1] == '"' else token[1:]
            parts.append(re.sub(r'\\([\\"$`!])', r"\1", inner))
        elif token[0] == "\\":
            parts.append(token[1:])
        else:
            parts.append(token)
    return "".join(parts)


def _give_up(_signal: int, _frame: object) -> None:
    raise TimeoutError
