"""Words for people: counts that agree with their noun, network strings made harmless."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with everything a terminal could act on, or hide, spelled out as escapes."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode()
        for char in text
    )


def bare_url(url: str) -> str:
    """The URL without user and password, as it may be shown."""
    scheme, slashes, rest = url.partition("//")
    host, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}" if slashes else url


def exchange(method: str, url: str, outcome: str, took: float) -> str:
    """`HTTP GET http://10.0.0.7:8000/metrics 200 in 12 ms`, for the log; ``took`` in seconds."""
    return f"HTTP {method} {bare_url(url)} {outcome} in {took * 1000:.0f} ms"


def plural(count: int, noun: str) -> str:
    """`1 gap`, `2 gaps`, `70 batches`, `1,234 entries`."""
    if count == 1:
        return f"1 {noun}"
    if noun.endswith("y"):
        return f"{count:,} {noun[:-1]}ies"
    return f"{count:,} {noun}{'es' if noun.endswith(('ch', 's')) else 's'}"
