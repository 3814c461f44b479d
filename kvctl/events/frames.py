"""ZMQ frames -> topic, seq, payload, for live messages and for replay answers."""

from __future__ import annotations

from collections.abc import Sequence

from kvctl.events.decode import MAX_PAYLOAD
from kvctl.events.errors import DecodeError

END_OF_REPLAY = b"\xff" * 8
"""The seq frame of the message that ends a replay answer (vLLM `ZmqEventPublisher.END_SEQ`)."""

MAX_SEQ = 2**63 - 1


def parse_message(frames: Sequence[bytes]) -> tuple[bytes, int, bytes]:
    """Topic, seq and payload of a published message: exactly three frames.

    Raises `DecodeError` that names what is wrong with the frames.
    """
    if len(frames) != 3:
        raise DecodeError(f"a message of {len(frames)} frames, expected 3 (topic, seq, payload)")
    return frames[0], parse_seq(frames[1]), checked_payload(frames[2])


def parse_replay(frames: Sequence[bytes]) -> tuple[bytes, int, bytes] | None:
    """Topic, seq and payload of one replay answer, None for the end marker.

    Up to vLLM 0.25 an answer is `[b"", seq, payload]` (the topic is not told), from 0.26 on
    `[b"", topic, seq, payload]`. Raises `DecodeError` for anything else.
    """
    if len(frames) not in (3, 4):
        raise DecodeError(f"a replay answer of {len(frames)} frames, expected 3 or 4")
    if frames[-2] == END_OF_REPLAY:
        return None
    return frames[-3], parse_seq(frames[-2]), checked_payload(frames[-1])


def parse_seq(frame: bytes) -> int:
    """The seq of a seq frame: 8 bytes, unsigned, big-endian."""
    if len(frame) != 8:
        raise DecodeError(f"a seq frame of {len(frame)} bytes, expected 8")
    seq = int.from_bytes(frame, "big")
    if seq > MAX_SEQ:
        raise DecodeError(f"seq {seq} is out of range")
    return seq


def checked_payload(payload: bytes) -> bytes:
    """The payload itself, if it is within the size limit."""
    if len(payload) > MAX_PAYLOAD:
        raise DecodeError(f"payload of {len(payload)} bytes is over the limit of {MAX_PAYLOAD}")
    return payload


def encode_seq(seq: int) -> bytes:
    """A seq as it stands in its frame."""
    return seq.to_bytes(8, "big")
