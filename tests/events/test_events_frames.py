"""ZMQ frames of live messages and of both replay framings."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given
from recordings import frames, lines

from kvctl.events import DecodeError, encode_seq, parse_message, parse_replay
from kvctl.events.decode import MAX_PAYLOAD

END = b"\xff" * 8


def test_a_message_is_topic_seq_and_payload() -> None:
    message = [b"kv@pod-a@tiny", b"\x00\x00\x00\x00\x00\x00\x01\x02", b"payload"]
    assert parse_message(message) == (b"kv@pod-a@tiny", 258, b"payload")
    assert parse_message([b"", bytes(8), b""]) == (b"", 0, b"")


@pytest.mark.parametrize("count", [0, 1, 2, 4, 5])
def test_a_message_of_another_number_of_frames_is_refused(count: int) -> None:
    with pytest.raises(DecodeError, match=f"{count} frames, expected 3"):
        parse_message([bytes(8)] * count)


@pytest.mark.parametrize("size", [0, 1, 7, 9, 16])
def test_a_seq_of_another_length_is_refused(size: int) -> None:
    for parse in (parse_message, parse_replay):
        with pytest.raises(DecodeError, match=f"a seq frame of {size} bytes, expected 8"):
            parse([b"t", bytes(size), b"p"])


@pytest.mark.parametrize("seq", [2**63, 2**64 - 2])
def test_a_seq_out_of_range_is_refused(seq: int) -> None:
    for parse in (parse_message, parse_replay):
        with pytest.raises(DecodeError, match=f"seq {seq} is out of range"):
            parse([b"t", seq.to_bytes(8, "big"), b"p"])


def test_the_end_marker_is_no_seq_of_a_live_message() -> None:
    with pytest.raises(DecodeError, match="out of range"):
        parse_message([b"t", END, b""])


@given(seq=st.integers(0, 2**63 - 1))
def test_a_seq_comes_back_from_its_frame(seq: int) -> None:
    frame = encode_seq(seq)
    assert frame == seq.to_bytes(8, "big")
    assert parse_message([b"", frame, b""])[1] == seq


def test_a_replay_answer_has_a_topic_or_not() -> None:
    assert parse_replay([b"", encode_seq(3), b"p"]) == (b"", 3, b"p")
    assert parse_replay([b"", b"topic", encode_seq(3), b"p"]) == (b"topic", 3, b"p")


def test_the_end_marker_of_either_framing_ends_a_replay() -> None:
    assert parse_replay([b"", END, b""]) is None
    assert parse_replay([b"", b"", END, b""]) is None
    assert parse_replay([b"", b"topic", END, b""]) is None


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_a_replay_answer_of_another_number_of_frames_is_refused(count: int) -> None:
    with pytest.raises(DecodeError, match=f"{count} frames, expected 3 or 4"):
        parse_replay([END] * count)


@pytest.mark.parametrize(
    ("name", "count", "topic", "seqs"),
    [
        ("synthetic-replay-3frames", 3, b"", [7, 8]),
        ("replay-router-from0", 4, b"kv@pod-a@tiny", list(range(61))),
    ],
)
def test_a_recorded_replay_is_read_up_to_its_end_marker(
    name: str, count: int, topic: bytes, seqs: list[int]
) -> None:
    answers = [frames(line) for line in lines(name)]
    assert {len(answer) for answer in answers} == {count}
    *batches, end = map(parse_replay, answers)
    assert end is None
    assert [(batch[0], batch[1]) for batch in batches if batch] == [(topic, seq) for seq in seqs]
    assert [batch[2] for batch in batches if batch] == [answer[-1] for answer in answers[:-1]]


def test_a_payload_over_64_mib_is_refused_in_any_framing() -> None:
    largest, larger = bytes(MAX_PAYLOAD), bytes(MAX_PAYLOAD + 1)
    assert parse_message([b"t", bytes(8), largest]) == (b"t", 0, largest)
    for parse, answer in (
        (parse_message, [b"t", bytes(8), larger]),
        (parse_replay, [b"", bytes(8), larger]),
        (parse_replay, [b"", b"t", bytes(8), larger]),
    ):
        with pytest.raises(DecodeError, match="67108865 bytes is over the limit of 67108864"):
            parse(answer)


@given(message=st.lists(st.binary(max_size=12) | st.just(END) | st.just(bytes(8)), max_size=6))
def test_any_frames_are_parsed_or_refused(message: list[bytes]) -> None:
    for parse in (parse_message, parse_replay):
        try:
            parsed = parse(message)
        except DecodeError:
            continue
        if parsed is None:
            assert message[-2] == END
            assert parse is parse_replay
        else:
            topic, seq, payload = parsed
            assert [topic, encode_seq(seq), payload] == message[-3:]
