"""Pods asked for their state over real HTTP."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest
from engine_server import Answer, EngineServer
from pages import AWAKE, LEVEL_1, gauge
from recordings import METRICS

from kvctl.engine import EngineClient, PodState, State, probe_state

EngineOf = Callable[[int | None], EngineServer]
Scripted = Callable[[Callable[[socket.socket], None]], str]


def verdicts(pod: PodState) -> list[State]:
    return [state.verdict for state in pod.states]


def test_a_pod_is_followed_through_sleep_and_wake(client: EngineClient) -> None:
    seen = []
    pod = None
    for call in (
        lambda: None,
        lambda: client.sleep(0),
        client.wake,
        lambda: client.sleep(1),
        lambda: client.wake(["weights"]),
        lambda: client.wake(["kv_cache"]),
        lambda: client.sleep(2),
        client.wake,
    ):
        call()
        pod = probe_state(client, pod)
        assert (pod.pod, pod.reachable, pod.error, pod.notes) == ("pod-a", True, None, ())
        assert pod.healthy is True
        seen += verdicts(pod)
    assert seen == [
        "awake", "paused", "awake", "sleeping-1", "waking", "awake", "sleeping-2", "awake",
    ]  # fmt: skip


def test_a_pause_that_the_gauge_hides_is_seen(engine: EngineServer, client: EngineClient) -> None:
    engine.paused = True
    assert verdicts(probe_state(client)) == [State.HALTED]


def test_the_evidence_is_as_old_as_the_question(client: EngineClient) -> None:
    before = time.time()
    pod = probe_state(client)
    assert before <= pod.states[0].at <= time.time()
    assert probe_state(client, clock=lambda: 7.0).states[0].at == 7.0


def test_an_asleep_engine_is_not_asked_for_what_would_change_nothing(
    engine: EngineServer, client: EngineClient
) -> None:
    client.sleep(1)
    engine.seen.clear()
    probe_state(client)
    assert engine.calls == ["GET /metrics", "GET /health"]


def test_an_old_engine_is_asked_whether_it_sleeps(engine_of: EngineOf) -> None:
    engine = engine_of(9)
    engine.page = 'vllm:num_requests_running{model_name="tiny"} 0.0\n'
    client = EngineClient("pod-a", engine.url)
    assert verdicts(probe_state(client)) == [State.AWAKE]
    client.sleep(1)
    pod = probe_state(client)
    assert verdicts(pod) == [State.SUSPECT]
    assert pod.states[0].models == ("tiny",)


def test_an_old_engine_without_dev_mode_is_unknown_and_says_how_to_change_that(
    engine_of: EngineOf,
) -> None:
    engine = engine_of(9)
    engine.page, engine.dev_mode = "process_start_time_seconds 1.7e9\n", False
    pod = probe_state(EngineClient("pod-a", engine.url))
    assert verdicts(pod) == [State.UNKNOWN]
    assert (pod.reachable, pod.error) == (True, None)
    assert "VLLM_SERVER_DEV_MODE=1" in pod.notes[0]


def test_an_unreachable_pod_is_unknown_and_not_asleep(engine: EngineServer) -> None:
    client = EngineClient("pod-b", engine.url)
    client.sleep(1)
    asleep = probe_state(client)
    assert verdicts(asleep) == [State.SLEEPING_1]
    engine.override["GET /metrics"] = lambda _: pytest.fail("not reached")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    gone = probe_state(EngineClient("pod-b", f"http://127.0.0.1:{port}"), asleep)
    assert verdicts(gone) == [State.UNKNOWN]
    assert (gone.reachable, gone.healthy) == (False, None)
    assert gone.error is not None
    assert gone.error.startswith(f"pod pod-b: GET /metrics: 127.0.0.1:{port} refuses")
    assert "refuses the connection" in gone.states[0].reason


def test_what_was_known_survives_a_probe_without_an_answer(
    engine: EngineServer, client: EngineClient
) -> None:
    client.sleep(1)
    asleep = probe_state(client)
    engine.override["GET /metrics"] = Answer(500)
    lost = probe_state(client, asleep)
    assert verdicts(lost) == [State.UNKNOWN]
    assert lost.known == asleep.known
    del engine.override["GET /metrics"]
    client.wake(["weights"])
    assert verdicts(probe_state(client, lost)) == [State.WAKING]
    assert verdicts(probe_state(client)) == [State.SLEEPING_1]


def test_a_gauge_that_makes_no_sense_once_does_not_replace_what_was_known(
    engine: EngineServer, client: EngineClient
) -> None:
    client.sleep(1)
    asleep = probe_state(client)
    engine.page = gauge((0, 0))
    damaged = probe_state(client, asleep)
    assert verdicts(damaged) == [State.UNKNOWN]
    assert damaged.known == asleep.known


@pytest.mark.parametrize(
    ("answer", "reachable", "told"),
    [
        (Answer.of({"detail": "Not Found"}, 404), True, "404"),
        (Answer.of({"error": "Unauthorized"}, 401), True, "a token is wanted"),
        (Answer.text("boom", 500), True, "500: boom"),
        (Answer.text("<html>hello</html>", 200, "text/html"), False, "web page"),
        (Answer.text("<html>hello</html>\n"), False, "web page"),
        (Answer(302, headers={"Location": "https://sso"}), False, "points to https://sso"),
        (Answer.text(""), True, "empty"),
        (Answer.text(gauge(AWAKE)[:-3]), True, "cut off"),
        (Answer.text(gauge(AWAKE).replace(" 1", " NaN")), True, "is nan"),
        (Answer(200, b"\xff\x00"), False, "not text"),
    ],
)
def test_metrics_that_tell_nothing_leave_the_state_unknown_with_the_reason(
    engine: EngineServer, client: EngineClient, answer: Answer, reachable: bool, told: str
) -> None:
    engine.override["GET /metrics"] = answer
    pod = probe_state(client, ranks=range(2))
    assert verdicts(pod) == [State.UNKNOWN, State.UNKNOWN]
    assert pod.reachable is reachable
    assert pod.error is not None
    assert told in pod.error
    assert told in pod.states[0].reason
    assert pod.error.startswith("pod pod-a: GET /metrics: ")


def test_a_dead_engine_behind_a_living_server_is_unknown(
    engine: EngineServer, client: EngineClient
) -> None:
    engine.healthy = False
    pod = probe_state(client)
    assert verdicts(pod) == [State.UNKNOWN]
    assert (pod.reachable, pod.healthy) == (True, False)
    assert pod.error is not None
    assert "calls itself dead" in pod.error


def test_a_server_that_dies_between_the_questions_is_judged_by_what_it_said(
    engine: EngineServer, client: EngineClient
) -> None:
    def die(_: object) -> Answer:
        raise ConnectionAbortedError

    engine.override["GET /health"] = die
    pod = probe_state(client)
    assert verdicts(pod) == [State.AWAKE]
    assert pod.healthy is None
    assert "GET /health" in pod.notes[0]
    # Nobody waits for a second answer that will not come.
    assert engine.calls == ["GET /metrics", "GET /health"]


def test_every_rank_has_its_state(engine: EngineServer, client: EngineClient) -> None:
    engine.page = (METRICS / "dp2-asleep.txt").read_text()
    pod = probe_state(client, ranks=range(3))
    assert verdicts(pod) == [State.SLEEPING_1, State.SLEEPING_1, State.UNKNOWN]
    assert [state.rank for state in pod.states] == [0, 1, 2]
    assert "do not name this rank" in pod.states[2].reason
    assert set(pod.known) == {0, 1}


def test_a_rank_that_is_missing_from_the_page_is_unknown(
    engine: EngineServer, client: EngineClient
) -> None:
    engine.page = gauge(AWAKE) + gauge(LEVEL_1, rank=1)
    first = probe_state(client)
    engine.page = gauge(LEVEL_1, rank=1)
    assert verdicts(probe_state(client, first)) == [State.UNKNOWN, State.SLEEPING_1]


def test_sglang_is_reachable_and_its_state_unknown(engine_of: EngineOf) -> None:
    engine = engine_of(None)
    pod = probe_state(EngineClient("pod-s", engine.url, kind="sglang"))
    assert verdicts(pod) == [State.UNKNOWN]
    assert (pod.reachable, pod.healthy, pod.error) == (True, True, None)
    assert "SGLang" in pod.states[0].reason
    assert engine.calls == ["GET /health"]


def test_a_pod_that_never_answers_costs_one_timeout(scripted: Scripted) -> None:
    connections: list[float] = []

    def hang(connection: socket.socket) -> None:
        connections.append(time.monotonic())
        connection.recv(1)

    pod = probe_state(EngineClient("pod-a", scripted(hang), timeout=0.3))
    assert verdicts(pod) == [State.UNKNOWN]
    assert pod.reachable is False
    assert len(connections) == 1
