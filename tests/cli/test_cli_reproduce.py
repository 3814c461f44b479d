"""`kvctl reproduce-2287` as a user runs it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests

from kvctl.sim import SimConfig, SimPod

sys.path.insert(0, str(Path(__file__).parents[1] / "operate"))

from driving import spec

ONE = ("--trigger", "reset-idle", "--delivery", "delivered", "--handler", "event")


@pytest.fixture
def pair() -> Iterator[tuple[SimPod, SimPod]]:
    with SimPod(SimConfig(name="pod-a")) as a, SimPod(SimConfig(name="pod-b")) as b:
        yield a, b


def real(pair: tuple[SimPod, SimPod]) -> list[str]:
    return ["--pod-a", spec(pair[0]), "--pod-b", spec(pair[1])]


def test_the_matrix_is_shown_with_what_it_proves(kvctl) -> None:
    result = kvctl(
        "reproduce-2287", "--trigger", "reset-idle", "--trigger", "sleep-0", COLUMNS="80"
    )
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0].split() == ["TRIGGER", "DELIVERY", "NOOP", "EVENT", "+RECONCILE", "+SYNC"]
    assert lines[1].split() == ["reset-idle", "delivered", *["bug", "A", "4/32"] * 3, "ok", "B"]
    assert max(map(len, lines)) <= 80
    assert "noop: every wipe misleads the router." in result.out
    assert "+sync: cured." in result.out
    assert "no metric shows a reset of an idle engine" in " ".join(result.out.split())
    assert result.err == ""


def test_json_is_as_documented(kvctl) -> None:
    told = kvctl("reproduce-2287", *ONE, "-o", "json").json
    assert told == {
        "scenarios": [
            {
                "trigger": "reset-idle",
                "delivery": "delivered",
                "handler": "event",
                "aibrix_scope": False,
                "stale_entries": 4,
                "routed_to": "pod-a",
                "cold_miss": True,
                "hit_tokens": 0,
                "lost_tokens": 32,
                "rule": "prefix match",
                "verdict": "bug",
            }
        ],
        "reproduced": True,
    }


def test_a_cell_is_explained_and_its_events_are_a_capture(kvctl, tmp_path: Path) -> None:
    path = tmp_path / "cell.kvcap"
    result = kvctl("reproduce-2287", *ONE, "--explain", "--save", path)
    assert result.code == 0
    assert "trigger: reset-idle on pod-a" in result.out
    assert "bug: sent to pod-a, for 4 stale entries" in result.out
    replayed = kvctl("replay", path, "-o", "json").json
    assert replayed["events"]["AllBlocksCleared"] == 1
    assert set(replayed["index"]["pods"]) == {"pod-a", "pod-b"}
    assert kvctl("reproduce-2287", *ONE, "--save", path).code == 1


@pytest.mark.parametrize(
    ("words", "expect", "code"),
    [
        (ONE, "bug", 0),
        (ONE, "fixed", 3),
        ((*ONE[:-1], "event+reconcile+sync"), "fixed", 0),
        ((*ONE[:-1], "event+reconcile+sync"), "bug", 3),
    ],
)
def test_it_is_a_check_for_ci(kvctl, words, expect, code) -> None:
    assert kvctl("reproduce-2287", *words, "--expect", expect).code == code


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--save", "x.kvcap"), "--save keeps one cell, and these are 80"),
        (("--pod-a", "10.0.0.7"), "--pod-a and --pod-b"),
        (("--gateway", "http://x"), "--gateway needs the pods"),
        (("--handler", "gateway"), "--gateway URL"),
        (("--trigger", "earthquake"), "earthquake"),
        (("--pod-a", "h:1", "--pod-b", "h:1"), "both are pod"),
        (("--pod-a", "h:1", "--pod-b", "g:1", "--trigger", "restart"), "no real engine"),
        (("--pod-a", "h:1", "--pod-b", "g:1"), "wants consent"),
        (("--pod-a", "h:1", "--pod-b", "g:1", "--aibrix-scope"), "simulated engines"),
    ],
)
def test_what_does_not_fit_is_refused(kvctl, words, told) -> None:
    result = kvctl("reproduce-2287", *words)
    assert result.code == 2
    assert told in result.err
    assert result.out == ""


def test_engines_that_are_there_give_the_same_cells(kvctl, pair) -> None:
    chosen = ["--trigger", "reset-then-traffic", "--trigger", "sleep-1", "--yes", "-o", "json"]
    told = kvctl("reproduce-2287", *real(pair), *chosen)
    assert told.code == 0
    simulated = kvctl("reproduce-2287", *chosen).json
    assert told.json == simulated


def test_an_engine_that_is_not_there_is_named(kvctl, pair) -> None:
    pair[1].close()
    result = kvctl("reproduce-2287", *real(pair), "--yes")
    assert result.code == 1
    assert "pod-b" in result.err


class Gateway(BaseHTTPRequestHandler):
    """Sends every prompt to its ``choice``: whoever it is for knows nothing of wipes."""

    choice: SimPod

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = requests.post(self.choice.api + self.path, data=body, timeout=30)
        self.send_response(answer.status_code)
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.parametrize(("which", "verdict"), [(0, "bug"), (1, "ok")])
def test_a_gateways_choice_is_told_by_the_pods_counters(kvctl, pair, which, verdict) -> None:
    handler = type("Chosen", (Gateway,), {"choice": pair[which]})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        told = kvctl(
            "reproduce-2287", *real(pair), "--gateway", url, "--gateway-settle", "0", "--yes",
            "--trigger", "reset-idle", "--trigger", "sleep-1", "-o", "json",
        )  # fmt: skip
        server.shutdown()
    assert told.code == 0
    for cell in told.json["scenarios"]:
        assert cell["routed_to"] == pair[which].name
        assert cell["verdict"] == verdict
        assert cell["handler"] == "gateway"
        assert "stale_entries" not in cell


def test_a_gateway_that_is_not_there_is_named(kvctl, pair) -> None:
    result = kvctl(
        "reproduce-2287", *real(pair), "--gateway", "http://127.0.0.1:1", "--yes",
        "--gateway-settle", "0",
    )  # fmt: skip
    assert result.code == 1
    assert "the gateway http://127.0.0.1:1 does not answer" in result.err


def test_a_terminal_sees_a_line_per_cell_and_ctrl_c_ends_it(terminal) -> None:
    shown = terminal("reproduce-2287", columns=100)
    shown.wait_for("1/80")
    shown.send("\x03")
    assert shown.end() == 130
    assert "TRIGGER" not in shown.text  # nothing was proven
