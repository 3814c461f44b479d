"""Redaction: nothing of the prompts stays, every equality does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgpack
import pytest
from hypothesis import given
from recordings import CAPTURES

from kvctl.capture import CaptureHeader, CaptureWriter, open_capture
from kvctl.capture.pseudonyms import Pseudonyms
from kvctl.capture.redact import redact
from kvctl.events import (
    FORMS,
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EventBatch,
    Gap,
    Note,
    Restart,
    WireBatch,
    WireForm,
    decode_batch,
    encode_batch,
)
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
    elif field in ("token_ids", "lookahead_token_ids") and old is not None:
        pairs["token"].pair(old, new)
    elif field in ("block_hashes", "parent_block_hash") and old is not None:
        assert not isinstance(old, bytes) or len(old) == len(new)
        pairs["hash"].pair(old, new)
    elif field in ("lora_name", "extra_keys", "session_id", "ownership") and isinstance(old, str):
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
    assert len(set(redacted.values())) == len(tokens)
    assert all(0 <= redacted[token] < 2**32 for token in narrow)
    for token in tokens - narrow:
        assert (-(2**63) <= redacted[token] < 0) if token < 0 else redacted[token] >= 2**32


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
    assert -(2**63) <= int(pseudonyms.block_hash(one)) < 0


def redacted_records(tmp_path: Path, *records: object, header: object = None) -> list:
    with CaptureWriter(tmp_path / "x.kvcap", header=header, force=True) as writer:
        for record in records:
            writer.write(record)
    redact(tmp_path / "x.kvcap", tmp_path / "y.kvcap", key=KEY, force=True)
    with open_capture(tmp_path / "y.kvcap") as reader:
        found = list(reader)
        assert reader.warnings == []
    return found


def test_a_pod_has_the_same_pseudonym_in_its_topic_and_in_a_mark(tmp_path: Path) -> None:
    payload = msgpack.packb([1.0, [["AllBlocksCleared"]], 0])
    batch, gap, other = redacted_records(
        tmp_path,
        WireBatch(10**18, "kv", 0, b"kv@kv@org/model@\xff", 3, payload),
        Gap(10**18, "kv", 0, 4, 5, False, "lost on the way"),
        WireBatch(10**18, "pod-b", 0, b"tenant-secret@", 0, payload),
    )
    kind, pod, model, odd = batch.topic.decode().split("@")
    assert kind == "kv"
    assert pod == batch.pod == gap.pod != "kv"
    assert len({pod, model, odd, other.pod}) == 4
    assert other.topic.endswith(b"@")
    assert b"secret" not in other.topic
    assert (gap.from_seq, gap.to_seq, gap.reason) == (4, 5, "lost on the way")


def test_a_reason_with_more_than_plain_words_is_left_out(tmp_path: Path) -> None:
    plain, odd = redacted_records(
        tmp_path,
        Restart(10**18, "pod-a", 0, 9, "seq went back from 9 to 0"),
        Restart(10**18, "pod-a", 0, 9, "topic kv@alice@x"),
    )
    assert plain.reason == "seq went back from 9 to 0"
    assert odd.reason == "redacted"
    assert (odd.last_seq, odd.recv_ns) == (9, 10**18)


def test_the_header_keeps_its_pods_and_no_endpoint(tmp_path: Path) -> None:
    header = CaptureHeader(1.5e9, "0.1.0", pods={"pod-a": {"events": ["tcp://secret:5557"]}})
    (note,) = redacted_records(tmp_path, Note(10**18, "pod-a", None, "tcp://x"), header=header)
    with open_capture(tmp_path / "y.kvcap") as reader:
        assert reader.header.pods == {note.pod: {}}
        assert reader.header.created == 1.5e9


def test_what_stands_behind_the_rank_of_a_batch_is_redacted_too(tmp_path: Path) -> None:
    payload = msgpack.packb([1.0, [], 0, "secret", {"secret": [7, 1.5, None, True]}])
    (wire,) = redacted_records(tmp_path, WireBatch(10**18, "pod-a", 0, b"kv", 0, payload))
    assert b"secret" not in wire.payload
    seven = Pseudonyms(KEY).token(7)
    assert list(msgpack.unpackb(wire.payload)[4].values()) == [[seven, 1.5, None, True]]


@pytest.mark.parametrize("behind", [b"\xa1\xff", b"\x81\x80\xc0", b"\xc1", b"\x91" * 5000])
def test_a_batch_with_an_odd_end_is_left_empty(tmp_path: Path, behind: bytes) -> None:
    payload = b"\x94\xcb" + bytes(8) + b"\x90\x00" + behind
    (wire,) = redacted_records(tmp_path, WireBatch(10**18, "pod-a", 0, b"kv", 0, payload))
    assert wire.payload == b""


@pytest.mark.parametrize("depth", [100, 700, 900, 950, 1000])
def test_however_deep_a_field_is_nested_its_secret_goes(tmp_path: Path, depth: int) -> None:
    payload = b"\x94\xcb" + bytes(8) + b"\x90\x00" + b"\x91" * depth + b"\xa6secret"
    (wire,) = redacted_records(tmp_path, WireBatch(10**18, "pod-a", 0, b"kv", 0, payload))
    assert b"secret" not in wire.payload
    assert wire.payload.startswith(payload[:100]) or wire.payload == b""


def test_a_map_with_arrays_for_keys_keeps_them(tmp_path: Path) -> None:
    behind = b"\x81\x92\x05\xa6secret\x05"
    payload = b"\x94\xcb" + bytes(8) + b"\x90\x00" + behind
    (wire,) = redacted_records(tmp_path, WireBatch(10**18, "pod-a", 0, b"kv", 0, payload))
    redacted = msgpack.unpackb(wire.payload, strict_map_key=False, use_list=False)[3]
    five = Pseudonyms(KEY).token(5)
    assert redacted == {(five, Pseudonyms(KEY).name("secret")): five}


def test_extension_types_and_times_of_unknown_fields_keep_their_kind(tmp_path: Path) -> None:
    event = {
        "type": "AllBlocksCleared",
        "blob": msgpack.ExtType(5, b"secret"),
        "at": msgpack.Timestamp(5, 0),
    }
    payload = msgpack.packb([1.0, [event]])
    (wire,) = redacted_records(tmp_path, WireBatch(10**18, "pod-a", 0, b"kv", 0, payload))
    (redacted,) = msgpack.unpackb(wire.payload)[1]
    kind, blob, moment = redacted.values()
    assert (kind, moment) == ("AllBlocksCleared", msgpack.Timestamp(5, 0))
    assert (blob.code, len(blob.data)) == (5, 6)
    assert b"secret" not in wire.payload


WORDS = st.text("abcdefghij-@/ü", min_size=6, max_size=12).map("name:".__add__)
SEEN_TOKENS = st.integers(10**6, 2**31)
HASHES = st.integers(2**40, 2**63) | st.binary(min_size=16, max_size=32)


@st.composite
def stores(draw: st.DrawFn) -> BlockStored:
    blocks = draw(st.integers(1, 3))
    size = draw(st.integers(1, 4))
    return BlockStored(
        block_hashes=draw(st.lists(HASHES, min_size=blocks, max_size=blocks)),
        parent_block_hash=draw(st.none() | HASHES),
        token_ids=draw(st.lists(SEEN_TOKENS, min_size=blocks * size, max_size=blocks * size)),
        block_size=size,
        lora_id=draw(st.none() | st.integers(0, 9)),
        medium=draw(st.none() | st.sampled_from(["GPU", "CPU"])),
        lora_name=draw(st.none() | WORDS),
        extra_keys=draw(
            st.none()
            | st.lists(
                st.none() | st.lists(WORDS | st.tuples(WORDS, st.integers(0, 99)).map(list)),
                min_size=blocks,
                max_size=blocks,
            )
        ),
        group_idx=draw(st.none() | st.integers(0, 3)),
        kv_cache_spec_kind=draw(st.none() | st.just("full_attention")),
        ownership=draw(st.none() | WORDS),
        session_id=draw(st.none() | WORDS),
        lookahead_token_ids=draw(st.none() | st.lists(SEEN_TOKENS, max_size=3)),
    )


EVENTS = (
    stores()
    | st.builds(BlockRemoved, block_hashes=st.lists(HASHES, max_size=2), ownership=WORDS)
    | st.builds(AllBlocksCleared)
)


def secrets_of(value: object, found: set[bytes]) -> set[bytes]:
    """What may not be found in the output: strings of names, hashes, runs of tokens as sent."""
    if isinstance(value, str) and value.startswith("name:"):
        found.add(value.encode())
    elif isinstance(value, bytes):
        found.add(value)
    elif isinstance(value, int) and value >= 10**6:
        found.add(msgpack.packb(value))
    elif isinstance(value, (list, tuple)):
        for each in value:
            secrets_of(each, found)
    elif isinstance(value, dict):
        secrets_of(list(value.values()), found)
    return found


@given(st.lists(EVENTS, max_size=4), st.sampled_from(FORMS))
def test_events_of_every_version_keep_their_form_and_lose_their_secrets(
    tmp_path_factory: pytest.TempPathFactory, events: list, form: WireForm
) -> None:
    payload = encode_batch(EventBatch(1.0, events, 0), form)
    tmp_path = tmp_path_factory.mktemp("redact")
    (wire,) = redacted_records(tmp_path, WireBatch(10**18, "pod-a", 0, b"kv", 0, payload))
    old, new = msgpack.unpackb(payload), msgpack.unpackb(wire.payload)
    pairs = {kind: Bijection() for kind in ("token", "hash", "name")}
    for one, other in zip(old[1], new[1], strict=True):
        told, redacted = named(one, form), named(other, form)
        assert list(told) == list(redacted)
        for field in told:
            walk(told[field], redacted[field], pairs, field)
    assert old[0] == new[0]
    assert old[2:] == new[2:]
    data = (tmp_path / "y.kvcap").read_bytes()
    assert [secret for secret in secrets_of(old, set()) if secret in data] == []
    # And it is still what an engine of that version would have sent.
    batch = decode_batch(wire.payload)
    assert encode_batch(batch, form) == wire.payload


def named(event: Any, form: WireForm) -> dict[str, Any]:
    if isinstance(event, dict):
        return event
    return dict(zip(("type", *form.fields(event[0])), event, strict=True))
