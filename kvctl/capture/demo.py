"""Recordings of real engines that ship with kvctl, named `demo:NAME`."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable

from kvctl.capture.errors import CaptureError

DEMO_PREFIX = "demo:"
_SUFFIX = ".kvcap"


def demo_names() -> list[str]:
    """The names there are."""
    files = [each.name for each in _folder().iterdir()]
    return sorted(name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX))


def demo_file(source: str) -> Traversable:
    """The file of `demo:NAME`; raises `CaptureError` that lists the names."""
    name = source.removeprefix(DEMO_PREFIX)
    if name not in demo_names():
        raise CaptureError(
            f"there is no recording {source!r}",
            remedy=f"there are {', '.join(DEMO_PREFIX + each for each in demo_names())}",
        )
    return _folder() / f"{name}{_SUFFIX}"


def _folder() -> Traversable:
    return resources.files("kvctl.capture") / "demos"
