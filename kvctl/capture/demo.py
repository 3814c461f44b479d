"""Recordings of real engines that ship with kvctl, named `demo:NAME`."""

from __future__ import annotations

from pathlib import Path

from kvctl.capture.errors import CaptureError

DEMO_PREFIX = "demo:"
_FOLDER = Path(__file__).with_name("demos")


def demo_names() -> list[str]:
    """The names there are."""
    return sorted(path.stem for path in _FOLDER.glob("*.kvcap"))


def demo_path(source: str) -> Path:
    """The file of `demo:NAME`; raises `CaptureError` that lists the names."""
    name = source.removeprefix(DEMO_PREFIX)
    if name not in demo_names():
        raise CaptureError(
            f"there is no recording {source!r}",
            remedy=f"there are {', '.join(DEMO_PREFIX + each for each in demo_names())}",
        )
    return _FOLDER / f"{name}.kvcap"
