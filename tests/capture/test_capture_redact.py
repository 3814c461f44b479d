"""Redaction: nothing of the prompts stays, every equality does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgpack
import pytest
from hypothesis import given
from recordings import CAPTURES

from kvctl.capture import CaptureWriter, open_capture, redact
from kvctl.capture.pseudonyms import Pseudonyms
from kvctl.events import Note, WireBatch, decode_batch
from kvctl.index import MemoryIndex
from kvctl.stream import order_capture

KEY = bytes(range(32))
NAMES = sorted(path.stem for path in CAPTURES.glob("*.jsonl") if "replay" not in path.stem)


class Bijection:
    """Pairs seen so far: one to one, or an assertion."""

    def __init__(self) -> None:
        self.there: dict[Any, Any] = {}
        self.back: dict[Any, Any] = {}

    def pair(self, old: Any, new: Any) -> None:
        assert self.there.setdefault(old, new) == new
        assert self.back.setdefault(new, old) == old


def walk(old: Any, new: Any, pairs: dict[str, Bijection], field: str = "") -> None:
    """Same shape and types; tokens, hashes and names in bijection; the rest equal."""
    assert type(old) is type(new)
    if isinstance(old, list):
        assert len(old) == len(new)
        for each, other in zip(old, new, strict=True):
            walk(each, other, pairs, field)
    elif field == "token_ids":
        pairs["token"].pair(old, new)
    elif field in ("block_hashes", "parent_block_hash") and old is not None:
        assert not isinstance(old, bytes) or len(old) == len(new)
        pairs["hash"].pair(old, new)
    elif field in ("lora_name", "extra_keys") and isinstance(old, str):
        pairs["name"].pair(old, new)
    else:
        assert old == new


def fields_of(event: Any) -> dict[str, Any]:
    if isinstance(event, dict):
        return event
    names = ["type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id",
             "medium", "lora_name", "extra_keys"]  # fmt: skip
    if event[0] == "BlockRemoved":
        names = ["type", "block_hashes", "medium"]
    return dict(zip(names, event, strict=False))


@pytest.mark.parametrize("name", NAMES)
def test_a_redacted_recording_is_the_same_under_other_names(tmp_path: Path, name: str) -> None:
    source, target = CAPTURES / f"{name}.jsonl", tmp_path / "x.kvcap"
    redact(source, target, key=KEY)
    pairs = {kind: Bijection() for kind in ("token", "hash", "name", "pod")}
    with open_capture(source) as before, open_capture(target) as after:
        for old, new in zip(before, after, strict=True):
            assert isinstance(old, WireBatch)
            assert isinstance(new, WireBatch)
            assert (old.recv_ns, old.rank, old.seq) == (new.recv_ns, new.rank, new.seq)
            pairs["pod"].pair(old.pod, new.pod)
            for part, other in zip(old.topic.split(b"@"), new.topic.split(b"@"), strict=True):
                pairs["name"].pair(part.decode(), other.decode())
            pairs["name"].pair(old.pod, new.pod)
            old_batch, new_batch = msgpack.unpackb(old.payload), msgpack.unpackb(new.payload)
            assert old_batch[0] == new_batch[0]
            assert old_batch[2:] == new_batch[2:]
            for event, other in zip(old_batch[1], new_batch[1], strict=True):
                assert type(event) is type(other)
                told, redacted = fields_of(event), fields_of(other)
                assert list(told) == list(redacted)
                for field in told:
                    walk(told[field], redacted[field], pairs, field)
    assert not {old for old, new in pairs["hash"].there.items() if old == new}
    data = target.read_bytes()
    for secret in [*pairs["name"].there, *pairs["pod"].there]:
        if secret not in ("", "kv"):
            assert secret.encode() not in data


@pytest.mark.parametrize("name", ["fleet", "lora", "hybrid", "salt", "restart"])
def test_the_index_of_a_redacted_capture_has_the_same_structure(tmp_path: Path, name: str) -> None:
    source, target = CAPTURES / f"{name}.jsonl", tmp_path / "x.kvcap"
    redact(source, target, key=KEY)
    shapes = []
    for path in (source, target):
        index = MemoryIndex()
        with open_capture(path) as reader:
            for record in order_capture(reader):
                index.apply(record)
        summary = index.summary()
        shapes.append((summary.blocks, sorted((s.entries, s.rank) for s in summary.streams)))
    assert shapes[0] == shapes[1]


def test_the_same_key_gives_the_same_pseudonyms_and_another_others(tmp_path: Path) -> None:
    source = CAPTURES / "salt.jsonl"
    for name, key in (("a", KEY), ("b", KEY), ("c", b"another key of some length")):
        redact(source, tmp_path / name, key=key)

    def payloads(name: str) -> list[bytes]:
        with open_capture(tmp_path / name) as reader:
            return [record.payload for record in reader]

    assert payloads("a") == payloads("b")
    assert not set(payloads("a")) & set(payloads("c"))


def test_what_cannot_be_redacted_is_left_empty_and_stays_undecodable(tmp_path: Path) -> None:
    with CaptureWriter(tmp_path / "x.kvcap") as writer:
        writer.write(WireBatch(10**18, "pod-a", 0, b"kv", 7, b"secret junk"))
        writer.write(Note(10**18, "pod-a", None, "secret note"))
    done = redact(tmp_path / "x.kvcap", tmp_path / "y.kvcap", key=KEY)
    assert done.undecodable == 1
    with open_capture(tmp_path / "y.kvcap") as reader:
        batch, _note = reader
    assert (batch.seq, batch.payload) == (7, b"")
    assert b"secret" not in (tmp_path / "y.kvcap").read_bytes()


def test_unknown_fields_and_events_are_redacted_too(tmp_path: Path) -> None:
    event = {
        "type": "BlockStored", "block_hashes": [1], "parent_block_hash": None, "token_ids": [5, 6],
        "block_size": 2, "session_id": "alice", "prompt_text": "hello alice", "deep": {"k": [5]},
        "lookahead_token_ids": [6],
    }  # fmt: skip
    unknown = {"type": "PromptSeen", "text": "hello alice", "ids": [5]}
    payload = msgpack.packb([1.0, [event, unknown, ["Other", "alice", 5, b"alice"]], 0])
    with CaptureWriter(tmp_path / "x.kvcap") as writer:
        writer.write(WireBatch(10**18, "pod-a", 0, b"kv", 0, payload))
    redact(tmp_path / "x.kvcap", tmp_path / "y.kvcap", key=KEY)
    assert b"alice" not in (tmp_path / "y.kvcap").read_bytes()
    with open_capture(tmp_path / "y.kvcap") as reader:
        (wire,) = reader
    assert isinstance(wire, WireBatch)
    stored, seen, other = msgpack.unpackb(wire.payload, strict_map_key=False)[1]
    five, six = stored["token_ids"]
    assert stored["lookahead_token_ids"] == [six]
    assert next(v for k, v in seen.items() if k != "type" and isinstance(v, list)) == [five]
    assert other[2] == five
    assert len(other[3]) == 5
    assert len(decode_batch(wire.payload).events) == 3


TOKENS = st.one_of(st.integers(0, 2**32 - 1), st.integers(-(2**63), 2**64 - 1))


@given(st.sets(TOKENS, min_size=2, max_size=40))
def test_different_tokens_have_different_pseudonyms(tokens: set[int]) -> None:
    pseudonyms = Pseudonyms(KEY)
    redacted = {token: pseudonyms.token(token) for token in tokens}
    narrow = {token for token in tokens if 0 <= token < 2**32}
    assert len({redacted[token] for token in narrow}) == len(narrow)
    assert all(redacted[token] < 2**32 for token in narrow)
    assert all(2**32 <= redacted[token] < 2**64 for token in tokens - narrow)


@given(st.binary(min_size=8, max_size=32))
def test_the_int_form_of_a_hash_stays_the_tail_of_its_byte_form(value: bytes) -> None:
    pseudonyms = Pseudonyms(KEY)
    as_bytes = pseudonyms.block_hash(value)
    as_int = pseudonyms.block_hash(int.from_bytes(value[-8:], "big"))
    assert isinstance(as_bytes, bytes)
    assert len(as_bytes) == len(value)
    assert int.from_bytes(as_bytes[-8:], "big") == as_int


@given(st.integers(-(2**63), -1), st.integers(-(2**63), -1))
def test_signed_hashes_keep_their_differences(one: int, two: int) -> None:
    pseudonyms = Pseudonyms(KEY)
    assert (one == two) == (pseudonyms.block_hash(one) == pseudonyms.block_hash(two))
    assert -(2**63) <= int(pseudonyms.block_hash(one)) < 2**64
