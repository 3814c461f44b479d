"""`EngineClient` against engines of every version, over real HTTP."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from engine_server import Answer, EngineServer

from kvctl.engine import (
    DevModeOff,
    EngineClient,
    EngineError,
    EngineKind,
    NotAnEngine,
    Refused,
    Unauthorized,
    Unreachable,
    Usage,
)
from kvctl.errors import UsageError
from kvctl.fleet import EngineKind as FleetEngineKind

EngineOf = Callable[[int | None], EngineServer]
SECRET = "sk-very-secret-0123456789"


def sglang(server: EngineServer) -> EngineClient:
    return EngineClient("pod-s", server.url, kind="sglang")


def test_the_fleet_knows_the_same_kinds_of_engines() -> None:
    assert get_args(EngineKind) == get_args(FleetEngineKind)


@pytest.mark.parametrize(("version", "ok"), [(9, None), (25, None), (26, True), (32, True)])
def test_a_reset_is_confirmed_from_0_26_on(
    engine_of: EngineOf, version: int, ok: bool | None
) -> None:
    server = engine_of(version)
    assert EngineClient("pod-a", server.url).reset().ok is ok
    assert server.calls == ["POST /reset_prefix_cache"]
    assert server.seen[0].query == {}


def test_a_reset_passes_its_flags_on(engine: EngineServer, client: EngineClient) -> None:
    client.reset(reset_running=True)
    client.reset(reset_external=True)
    assert [seen.query for seen in engine.seen] == [
        {"reset_running_requests": ["true"]},
        {"reset_external": ["true"]},
    ]


def test_a_reset_while_requests_run_is_reported_as_not_done(
    engine: EngineServer, client: EngineClient
) -> None:
    engine.running_requests = True
    answer = client.reset()
    assert answer.ok is False
    assert "running requests" in answer.detail


@pytest.mark.parametrize(("version", "ok"), [(11, None), (31, None), (32, True)])
def test_sleep_and_wake_are_confirmed_from_0_32_on(
    engine_of: EngineOf, version: int, ok: bool | None
) -> None:
    client = EngineClient("pod-a", engine_of(version).url)
    assert client.sleep(2).ok is ok
    assert client.is_sleeping() is True
    assert client.wake().ok is ok
    assert client.is_sleeping() is False


def test_sleep_passes_level_and_mode_on(engine: EngineServer, client: EngineClient) -> None:
    client.sleep(0, mode="wait")
    client.sleep()
    assert [seen.query for seen in engine.seen] == [
        {"level": ["0"], "mode": ["wait"]},
        {"level": ["1"]},
    ]


def test_waking_in_parts_is_awake_with_the_last_part(
    engine: EngineServer, client: EngineClient
) -> None:
    client.sleep(2)
    first, second = client.wake(["weights"]), client.wake(["kv_cache"])
    assert (first.ok, first.status) == (None, "sleeping")
    assert (second.ok, second.status) == (True, "awake")
    client.sleep(1)
    client.wake(["weights", "kv_cache"])
    assert engine.seen[-1].query == {"tags": ["weights", "kv_cache"]}


def test_only_new_engines_tell_whether_they_are_paused(engine_of: EngineOf) -> None:
    assert EngineClient("pod-a", engine_of(31).url).is_paused() is None
    server = engine_of(32)
    client = EngineClient("pod-a", server.url)
    assert client.is_paused() is False
    server.paused = True
    assert client.is_paused() is True


def test_health_is_true_asleep_and_false_when_the_engine_is_dead(
    engine: EngineServer, client: EngineClient
) -> None:
    client.sleep(1)
    assert client.health() is True
    engine.healthy = False
    assert client.health() is False
    engine.override["GET /health"] = Answer(404)
    with pytest.raises(Refused, match="404"):
        client.health()


def test_models_and_metrics_are_read(engine: EngineServer, client: EngineClient) -> None:
    assert client.models() == ["tiny", "ad1"]
    engine.page = 'vllm:x{model_name="é"} 1\n'
    assert client.metrics() == engine.page


def test_a_completion_sends_token_ids_and_tells_the_usage(
    engine: EngineServer, client: EngineClient
) -> None:
    assert client.complete([5, 6, 7], "tiny") == Usage(3, None)
    engine.prompt_details = True
    assert client.complete(range(64), "ad1", max_tokens=4, cache_salt="t1") == Usage(64, 32)
    first, second = (seen.json for seen in engine.seen)
    assert first == {"model": "tiny", "prompt": [5, 6, 7], "max_tokens": 1, "temperature": 0}
    assert second["cache_salt"] == "t1"
    assert (second["prompt"], second["max_tokens"]) == (list(range(64)), 4)


def test_a_model_that_is_not_served_is_refused_in_the_engines_words(client: EngineClient) -> None:
    with pytest.raises(Refused, match=r"pod-a: POST /v1/completions.*404: The model `no` does not"):
        client.complete([1], "no")


@pytest.mark.parametrize(
    ("call", "needs"),
    [
        (lambda c: c.reset(), "VLLM_SERVER_DEV_MODE=1)"),
        (lambda c: c.sleep(1), "VLLM_SERVER_DEV_MODE=1 and --enable-sleep-mode)"),
        (lambda c: c.wake(), "VLLM_SERVER_DEV_MODE=1 and --enable-sleep-mode)"),
        (lambda c: c.is_sleeping(), "VLLM_SERVER_DEV_MODE=1 and --enable-sleep-mode)"),
    ],
)
def test_404_says_how_to_turn_the_endpoint_on(
    engine: EngineServer,
    client: EngineClient,
    call: Callable[[EngineClient], object],
    needs: str,
) -> None:
    engine.dev_mode = False
    with pytest.raises(DevModeOff) as caught:
        call(client)
    assert str(caught.value).startswith("pod pod-a: ")
    assert str(caught.value).endswith(f"(start vLLM with {needs}")
    assert caught.value.sent is False


@pytest.mark.parametrize(
    ("answer", "told", "sent"),
    [
        (
            Answer.of({"error": {"message": "level must be 0, 1 or 2"}}, 400),
            "400: level must",
            False,
        ),
        (Answer.of({"detail": "Method Not Allowed"}, 405), "405: Method Not Allowed", False),
        (Answer.of({"error": {"message": "Worker failed"}}, 500), "500: Worker failed", True),
        (Answer.text("<html>bad gateway</html>", 502, "text/html"), "502: Bad Gateway", True),
        (Answer(503), "503: Service Unavailable", True),
    ],
)
def test_an_error_answer_brings_the_engines_own_message(
    engine: EngineServer, client: EngineClient, answer: Answer, told: str, sent: bool
) -> None:
    engine.override["POST /sleep"] = answer
    with pytest.raises(Refused) as caught:
        client.sleep(1)
    assert told in str(caught.value)
    assert (caught.value.status, caught.value.sent) == (answer.status, sent)


def test_a_hostile_message_is_made_harmless(engine: EngineServer, client: EngineClient) -> None:
    engine.override["POST /sleep"] = Answer.of({"detail": "\x1b[2J\n" * 400}, 500)
    with pytest.raises(Refused) as caught:
        client.sleep(1)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def test_the_token_is_sent_to_every_endpoint(engine: EngineServer) -> None:
    engine.token, engine.token_everywhere = SECRET, True
    client = EngineClient("pod-a", engine.url, api_key=SECRET)
    client.reset(), client.models(), client.metrics(), client.health()
    assert {seen.headers["authorization"] for seen in engine.seen} == {f"Bearer {SECRET}"}


@pytest.mark.parametrize("status", [401, 403])
def test_a_wrong_token_is_told_from_a_missing_one(engine: EngineServer, status: int) -> None:
    engine.override["GET /v1/models"] = Answer.of({"error": "Unauthorized"}, status)
    with pytest.raises(Unauthorized, match=rf"a token is wanted \({status}\).*KVCTL_API_KEY"):
        EngineClient("pod-a", engine.url).models()
    with pytest.raises(Unauthorized, match=rf"the token is refused \({status}\)"):
        EngineClient("pod-a", engine.url, api_key=SECRET).models()


def test_the_token_shows_nowhere_even_when_the_server_repeats_it(
    engine: EngineServer, caplog: pytest.LogCaptureFixture
) -> None:
    def repeat(seen: object) -> Answer:
        headers = seen.headers  # type: ignore[attr-defined]
        return Answer.of({"detail": "x" * 280 + headers["authorization"]}, 400)

    caplog.set_level(logging.DEBUG)
    client = EngineClient("pod-a", engine.url, api_key=SECRET)
    engine.override = {
        "POST /sleep": repeat,
        "GET /health": Answer(302, headers={"Location": f"/{SECRET}"}),
    }
    shown = [repr(client), repr(vars(client))]
    for call in (client.sleep, client.health):
        with pytest.raises(EngineError) as caught:
            call()
        shown += [str(caught.value), repr(caught.value), repr(vars(caught.value))]
    text = " ".join(shown) + caplog.text
    assert SECRET[:8] not in text
    assert "***" in text


def test_no_password_of_the_users_netrc_is_sent(
    engine: EngineServer, client: EngineClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password mine\n")
    monkeypatch.setenv("NETRC", str(netrc))
    client.health()
    assert "authorization" not in engine.seen[0].headers


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_no_redirect_is_followed(engine: EngineServer, engine_of: EngineOf, status: int) -> None:
    elsewhere = engine_of(32)
    target = f"{elsewhere.url}/reset_prefix_cache"
    engine.override["POST /reset_prefix_cache"] = Answer(status, headers={"Location": target})
    client = EngineClient("pod-a", engine.url, api_key=SECRET)
    with pytest.raises(NotAnEngine, match=f"points to {target}"):
        client.reset()
    assert elsewhere.seen == []


def test_a_web_page_is_no_engine(engine: EngineServer, client: EngineClient) -> None:
    page = Answer.text("<!DOCTYPE html><title>Login</title>", content_type="text/html")
    engine.override = {"POST /sleep": page, "GET /metrics": page, "GET /health": page}
    for call in (client.sleep, client.metrics, client.health):
        with pytest.raises(NotAnEngine, match="web page"):
            call()


@pytest.mark.parametrize("body", [b"", b"[]", b'{"is_sleeping": "yes"}', b"\xff\xfe"])
def test_an_answer_of_another_shape_is_no_engine(
    engine: EngineServer, client: EngineClient, body: bytes
) -> None:
    for call in ("GET /is_sleeping", "GET /is_paused", "GET /v1/models", "POST /v1/completions"):
        engine.override[call] = Answer(200, body)
    for ask in (
        client.is_sleeping,
        client.is_paused,
        client.models,
        lambda: client.complete([1], "tiny"),
    ):
        with pytest.raises(NotAnEngine, match="not what an engine answers"):
            ask()


def test_metrics_that_are_not_text_are_no_engines(
    engine: EngineServer, client: EngineClient
) -> None:
    engine.override["GET /metrics"] = Answer(200, b"\xff\xfe\x00")
    with pytest.raises(NotAnEngine, match="not text"):
        client.metrics()


def test_a_path_in_the_api_url_is_kept(engine: EngineServer) -> None:
    engine.override["GET /engines/a/health"] = Answer(200)
    assert EngineClient("pod-a", f"{engine.url}/engines/a/").health() is True


def test_sglangs_endpoints_stand_behind_the_same_calls(engine_of: EngineOf) -> None:
    server = engine_of(None)
    client = sglang(server)
    assert client.reset().ok is None
    assert client.sleep(1).ok is None
    assert client.wake().ok is None
    assert client.wake(["kv_cache"]).ok is None
    assert server.calls == [
        "POST /flush_cache",
        "POST /release_memory_occupation",
        "POST /resume_memory_occupation",
        "POST /resume_memory_occupation",
    ]
    assert [seen.json for seen in server.seen[1:]] == [{}, {}, {"tags": ["kv_cache"]}]
    server.running_requests = True
    refused = client.reset()
    assert refused.ok is False
    assert "Flush cache failed." in refused.detail


def test_what_sglang_does_not_have_is_refused_before_asking(engine_of: EngineOf) -> None:
    server = engine_of(None)
    client = sglang(server)
    assert (client.is_sleeping(), client.is_paused()) == (None, None)
    for call in (
        lambda: client.reset(reset_running=True),
        lambda: client.reset(reset_external=True),
        lambda: client.sleep(0),
        lambda: client.sleep(1, mode="wait"),
    ):
        with pytest.raises(UsageError, match="pod-s: SGLang"):
            call()
    assert server.seen == []


def test_a_vllm_taken_for_sglang_is_told_so(engine: EngineServer) -> None:
    with pytest.raises(DevModeOff, match="is this pod's engine SGLang"):
        sglang(engine).reset()


def test_a_sleeping_engine_that_never_answers_runs_into_the_timeout(
    engine: EngineServer, client: EngineClient
) -> None:
    awake = threading.Event()

    def hang(_: object) -> Answer:
        awake.wait(30)
        return Answer()

    engine.override["POST /v1/completions"] = hang
    try:
        with pytest.raises(Unreachable, match=r"no whole answer .* within 0\.3 s") as caught:
            client.complete([1], "tiny", timeout=0.3)
    finally:
        awake.set()
    assert caught.value.sent is True
