"""Opens the two files of a copy: the capture that is read, and the one that it becomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kvctl.capture.errors import CaptureError
from kvctl.capture.format import CaptureHeader, new_header
from kvctl.capture.reader import CaptureReader, open_capture
from kvctl.capture.writer import CaptureWriter


class CopyInterrupted(KeyboardInterrupt):
    """Ctrl-C when the copy had begun: it holds a part, and nothing in the file tells."""


@contextmanager
def copying(
    source: str | Path,
    target: str | Path,
    *,
    force: bool,
    header: Callable[[CaptureHeader], CaptureHeader] = lambda header: header,
) -> Iterator[tuple[CaptureReader, CaptureWriter]]:
    """Reader and writer, closed at the end; ``header`` makes the target's header of the source's.

    JSON lines have no header: there the target's says that it begins now. Raises `CaptureError`,
    also where both are the same file, which the copy would wipe before it is read, and
    `CopyInterrupted`.
    """
    with open_capture(source) as reader:
        if reader.reads(Path(target)):
            raise CaptureError(
                f"{target} is the capture that is read", remedy="write to another file"
            )
        told = new_header() if reader.is_lines else reader.header
        with CaptureWriter(target, header=header(told), force=force) as writer:
            try:
                yield reader, writer
            except KeyboardInterrupt:
                raise CopyInterrupted from None
