"""Live streams: subscription, order, gaps, replay and restarts."""

from typing import TYPE_CHECKING

from kvctl.lazy import exports

if TYPE_CHECKING:
    from kvctl.stream.errors import StreamError
    from kvctl.stream.offline import order_capture
    from kvctl.stream.order import Sequencer
    from kvctl.stream.publisher import ReplayablePublisher
    from kvctl.stream.reader import StreamReader
    from kvctl.stream.source import StreamSource
    from kvctl.stream.status import StreamStatus

__all__ = [
    "ReplayablePublisher",
    "Sequencer",
    "StreamError",
    "StreamReader",
    "StreamSource",
    "StreamStatus",
    "order_capture",
]

# ZMQ is not needed to put a capture in order.
__getattr__ = exports(
    __name__,
    {
        "ReplayablePublisher": "publisher",
        "Sequencer": "order",
        "StreamError": "errors",
        "StreamReader": "reader",
        "StreamSource": "source",
        "StreamStatus": "status",
        "order_capture": "offline",
    },
)
