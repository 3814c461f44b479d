"""What an engine has published by now, asked of its replay."""

from __future__ import annotations

import time

import zmq

from kvctl.errors import KvctlError
from kvctl.events import encode_seq, parse_replay

_TIMEOUT_S = 5.0


def last_published(endpoint: str, since: int) -> int | None:
    """The seq of the last batch from ``since`` on, None where there is none.

    Raises `KvctlError` where the replay does not answer.
    """
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(endpoint)
        socket.send_multipart([b"", encode_seq(since)])
        end = time.monotonic() + _TIMEOUT_S
        last = None
        while socket.poll(max(0, int((end - time.monotonic()) * 1000))):
            answer = parse_replay(socket.recv_multipart())
            if answer is None:
                return last
            last = answer[1]
    raise KvctlError(
        f"the replay at {endpoint} does not answer",
        remedy="the experiment needs it to know when every event has come",
    )
