"""Capture files: batches recorded verbatim, with marks for gaps and restarts."""

from kvctl.capture.convert import ConvertSummary, convert
from kvctl.capture.demo import demo_names
from kvctl.capture.errors import CaptureError
from kvctl.capture.format import CaptureHeader, Stored
from kvctl.capture.info import CaptureInfo, StreamInfo, capture_info
from kvctl.capture.reader import CaptureReader, open_capture
from kvctl.capture.redact import RedactSummary, redact
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
    "convert",
    "demo_names",
    "open_capture",
    "redact",
]
