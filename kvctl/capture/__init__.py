"""Capture files: batches recorded verbatim, with marks for gaps and restarts."""

from typing import TYPE_CHECKING

from kvctl.capture.errors import CaptureError
from kvctl.capture.format import CaptureHeader, Stored
from kvctl.capture.reader import CaptureReader, open_capture
from kvctl.lazy import exports

if TYPE_CHECKING:
    from kvctl.capture.convert import ConvertSummary
    from kvctl.capture.demo import demo_names
    from kvctl.capture.info import CaptureInfo, StreamInfo, capture_info
    from kvctl.capture.redact import RedactSummary
    from kvctl.capture.writer import CaptureWriter

__all__ = [
    "CaptureError",
    "CaptureHeader",
    "CaptureInfo",
    "CaptureReader",
    "CaptureWriter",
    "ConvertSummary",
    "RedactSummary",
    "Stored",
    "StreamInfo",
    "capture_info",
    "demo_names",
    "open_capture",
]

__getattr__ = exports(
    __name__,
    {
        "CaptureInfo": "info",
        "CaptureWriter": "writer",
        "ConvertSummary": "convert",
        "RedactSummary": "redact",
        "StreamInfo": "info",
        "capture_info": "info",
        "demo_names": "demo",
    },
)
