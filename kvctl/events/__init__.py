"""The wire: ZMQ frames and msgpack payloads of KV events, for every vLLM version."""

from kvctl.events.decode import MAX_PAYLOAD, decode_batch, is_map_form
from kvctl.events.encode import encode_batch
from kvctl.events.errors import DecodeError
from kvctl.events.filter import EventFilter
from kvctl.events.frames import END_OF_REPLAY, encode_seq, parse_message, parse_replay
from kvctl.events.model import (
    AllBlocksCleared,
    BlockHash,
    BlockRemoved,
    BlockStored,
    Event,
    EventBatch,
    UnknownEvent,
    event_type,
    hash_text,
    low_64,
)
from kvctl.events.position import Position, position_of
from kvctl.events.records import (
    Batch,
    Gap,
    Note,
    Record,
    Restart,
    Undecodable,
    WireBatch,
    decode_record,
    stream_of,
)
from kvctl.events.tally import Tally
from kvctl.events.wire import FORMS, WireForm, wire_form

__all__ = [
    "END_OF_REPLAY",
    "FORMS",
    "MAX_PAYLOAD",
    "AllBlocksCleared",
    "Batch",
    "BlockHash",
    "BlockRemoved",
    "BlockStored",
    "DecodeError",
    "Event",
    "EventBatch",
    "EventFilter",
    "Gap",
    "Note",
    "Position",
    "Record",
    "Restart",
    "Tally",
    "Undecodable",
    "UnknownEvent",
    "WireBatch",
    "WireForm",
    "decode_batch",
    "decode_record",
    "encode_batch",
    "encode_seq",
    "event_type",
    "hash_text",
    "is_map_form",
    "low_64",
    "parse_message",
    "parse_replay",
    "position_of",
    "stream_of",
    "wire_form",
]
