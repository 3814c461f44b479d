"""What engines' answers say, version by version."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvctl.engine import Usage
from kvctl.engine.answers import (
    MESSAGE_LIMIT,
    Reply,
    message,
    printable,
    read_flag,
    read_flush,
    read_models,
    read_reset,
    read_sleep,
    read_usage,
    read_wake,
)


def reply(value: object, status: int = 200) -> Reply:
    return Reply(status, json.dumps(value).encode(), "application/json")


EMPTY = Reply(200, b"")
NONSENSE = [EMPTY, reply(None), reply([]), reply(1), reply({"other": 1}), Reply(200, b"\xff{")]


def test_a_reset_says_whether_it_worked() -> None:
    assert read_reset(reply({"success": True})).ok is True
    refused = read_reset(reply({"success": False}))
    assert refused.ok is False
    assert "running requests" in refused.detail


@pytest.mark.parametrize("answer", [*NONSENSE, reply({"success": 1}), reply({"success": None})])
def test_anything_else_leaves_a_reset_unknown(answer: Reply) -> None:
    told = read_reset(answer)
    assert told.ok is None
    assert "does not tell" in told.detail


def test_a_sleep_says_its_level() -> None:
    told = read_sleep(reply({"status": "sleeping", "level": 2}), 2)
    assert (told.ok, told.status) == (True, "sleeping")
    assert "level 2" in told.detail
    assert read_sleep(reply({"status": "sleeping", "level": 1}), 2).ok is False
    assert read_sleep(reply({"status": "awake"}), 1).ok is False


@pytest.mark.parametrize("answer", NONSENSE)
def test_an_empty_answer_leaves_sleep_and_wake_unknown(answer: Reply) -> None:
    assert read_sleep(answer, 1).ok is None
    assert read_wake(answer, ()).ok is None


def test_a_wake_says_whether_the_engine_is_awake() -> None:
    assert read_wake(reply({"status": "awake", "tags": None}), ()).ok is True
    whole = read_wake(reply({"status": "sleeping", "tags": None}), ())
    assert (whole.ok, whole.status) == (False, "sleeping")


def test_a_partial_wake_and_an_unknown_tag_look_alike() -> None:
    partial = read_wake(reply({"status": "sleeping", "tags": ["weights"]}), ("weights",))
    assert (partial.ok, partial.status) == (None, "sleeping")
    assert "weights" in partial.detail


def test_sglang_refuses_a_flush_with_400() -> None:
    refused = read_flush(Reply(400, b"Flush cache failed.\n", "text/plain"))
    assert refused.ok is False
    assert "Flush cache failed." in refused.detail
    assert read_flush(Reply(200, b"Cache flushed.\n")).ok is None


def test_a_usage_tells_cached_tokens_or_not() -> None:
    usage = {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 96}}
    assert read_usage(reply({"usage": usage})) == Usage(100, 96)
    usage["prompt_tokens_details"] = {"cached_tokens": 0}
    assert read_usage(reply({"usage": usage})) == Usage(100, 0)
    for details in (None, {}, [], {"cached_tokens": None}, {"cached_tokens": -1}):
        told = {"prompt_tokens": 7, "prompt_tokens_details": details}
        assert read_usage(reply({"usage": told})) == Usage(7, None)


@pytest.mark.parametrize(
    "answer", [*NONSENSE, reply({"usage": {}}), reply({"usage": {"prompt_tokens": True}})]
)
def test_what_is_no_usage_is_none(answer: Reply) -> None:
    assert read_usage(answer) is None


def test_models_are_listed_by_name() -> None:
    assert read_models(reply({"data": [{"id": "tiny"}, {"id": 3}, "x", {"id": "ad1"}]})) == [
        "tiny",
        "ad1",
    ]
    for answer in NONSENSE:
        assert read_models(answer) is None


def test_a_flag_is_a_boolean_and_nothing_else() -> None:
    assert read_flag(reply({"is_sleeping": False}), "is_sleeping") is False
    for value in ("true", 1, None):
        assert read_flag(reply({"is_sleeping": value}), "is_sleeping") is None


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"error": {"message": "requires a completed pause first"}}, "requires a completed pause"),
        ({"error": "Failed to pause generation: x"}, "Failed to pause generation: x"),
        ({"detail": "Not Found"}, "Not Found"),
        ({"object": "error", "message": "no such model"}, "no such model"),
        (
            {"detail": [{"loc": ["query", "level"], "msg": "Input should be a valid integer"}]},
            "query.level: Input should be a valid integer",
        ),
        ({"detail": [{"loc": "x", "msg": "a"}, {"msg": "b"}, 3]}, "a; b"),
        ({"error": {"code": 500}}, '{"error": {"code": 500}}'),
    ],
)
def test_an_error_is_told_in_the_engines_own_words(value: object, told: str) -> None:
    assert message(reply(value, 500)).startswith(told)


def test_an_error_without_words_is_told_by_its_status() -> None:
    assert message(Reply(500, b"")) == "Internal Server Error"
    assert message(Reply(502, b"<html><h1>Bad</h1></html>", "text/html")) == "Bad Gateway"
    assert message(Reply(599, b"\n")) == "HTTP status 599"
    assert message(Reply(500, b"Internal Server Error\n")) == "Internal Server Error"


def test_a_hostile_message_becomes_one_short_printable_line() -> None:
    hostile = "\x1b[31mred\r\nsecond\tline \x07\u202e" + "x" * 5000
    told = message(reply({"error": {"message": hostile}}, 500))
    assert told.startswith("\\x1b[31mred second line \\x07\\u202e")
    assert len(told) == MESSAGE_LIMIT
    assert told.endswith("…")


def test_json_too_deep_or_too_long_for_python_is_no_json() -> None:
    for body in (b"[" * 100_000, b"9" * 100_000):
        assert read_reset(Reply(200, body)).ok is None


@given(st.text(), st.integers(1, 50))
def test_printable_text_is_a_short_line_of_printable_characters(text: str, limit: int) -> None:
    shown = printable(text, limit)
    assert len(shown) <= limit
    assert shown.isprintable()


@given(st.binary(max_size=300), st.integers(100, 599))
def test_any_body_can_be_read(body: bytes, status: int) -> None:
    answer = Reply(status, body)
    read_reset(answer), read_sleep(answer, 1), read_wake(answer, ("weights",)), read_flush(answer)
    read_usage(answer), read_models(answer), read_flag(answer, "is_sleeping")
    assert message(answer).isprintable()
