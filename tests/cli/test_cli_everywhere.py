"""The options that stand everywhere: --quiet, --verbose, --color; and how talk meets a terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path += [str(Path(__file__).parents[1] / name) for name in ("fleet", "operate")]

from driving import complete
from kube_server import TOKEN, KubeServer, pod_object, write_kubeconfig

from kvctl.sim import SimConfig, SimPod

KEY = "sk-very-secret"
ESCAPE = "\x1b["


@pytest.fixture
def pod() -> Iterator[SimPod]:
    with SimPod(SimConfig(name="pod-a")) as running:
        complete(running)
        yield running


def spec(pod: SimPod) -> str:
    return f"name=pod-a,api={pod.api},events={pod.events[0]},replay={pod.replay[0]}"


def _untimed(report: str) -> str:
    return re.sub(r"in [0-9.]+ s", "", report)


@pytest.mark.parametrize("words", [("--quiet", "replay"), ("replay", "--quiet"), ("-q", "replay")])
def test_quiet_stands_before_and_behind_the_command(kvctl, words) -> None:
    loud = kvctl("replay", "demo:warm", "--save", "x.sqlite")
    assert "kept" in loud.err
    done = kvctl(*words, "demo:warm", "--save", "y.sqlite")
    assert done.code == 0
    assert done.err == ""
    assert _untimed(done.out) == _untimed(loud.out)


def test_quiet_stands_behind_a_group_too(kvctl, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[contexts.prod]\n")
    for words in (("config", "-q", "use-context"), ("config", "use-context", "-q")):
        done = kvctl(*words, "prod")
        assert (done.code, done.out, done.err) == (0, "", "")


def test_quiet_silences_no_error(kvctl) -> None:
    done = kvctl("--quiet", "replay", "nothing.kvcap")
    assert done.code == 1
    assert done.err.startswith("kvctl: cannot read nothing.kvcap")
    assert kvctl("-q", "tial").err.startswith("kvctl: there is no command 'tial'")


def test_quiet_silences_no_question(terminal, pod: SimPod) -> None:
    screen = terminal("-q", "reset", "--pod", spec(pod), columns=200)
    screen.wait_for("Go ahead? [y/N]")
    screen.send("n\r")
    assert screen.end() == 1
    assert "nothing was done" in screen.text


def test_verbose_tells_http_and_zmq(kvctl, pod: SimPod) -> None:
    done = kvctl("pods", "--pod", spec(pod), "-v", "-o", "json", KVCTL_API_KEY=KEY)
    assert done.code == 0
    assert done.json["pods"][0]["state"] == "awake"
    lines = done.err.splitlines()
    assert all(line.startswith("> ") for line in lines)
    assert any(re.fullmatch(rf"> HTTP GET {pod.api}/metrics 200 in \d+ ms", each) for each in lines)
    assert f"> ZMQ connect {pod.events[0]} (pod pod-a), subscribe ''" in lines
    assert f"> ZMQ connected {pod.events[0]}" in lines
    assert f"> ZMQ replay request to {pod.replay[0]} from seq 0" in lines
    assert f"> ZMQ replay of {pod.replay[0]}: 1 batches, whole" in lines
    assert KEY not in done.err
    assert kvctl("pods", "--pod", spec(pod), "-o", "json").err == ""


def test_verbose_tells_what_failed(kvctl) -> None:
    done = kvctl("--verbose", "pods", "--pod", "name=pod-a,host=127.0.0.1,api=http://127.0.0.1:9",
                 "--timeout", "1")  # fmt: skip
    assert re.search(r"^> HTTP GET http://127.0.0.1:9/metrics failed in \d+ ms$", done.err, re.M)


def test_verbose_with_quiet_tells_the_wire_only(kvctl, pod: SimPod) -> None:
    done = kvctl("tail", "--pod", spec(pod), "--count", "1", "-q", "-v")
    assert done.code == 0
    assert done.err
    assert all(line.startswith("> ") for line in done.err.splitlines())


def test_verbose_tells_kubernetes_without_the_token(kvctl, pod: SimPod, tmp_path: Path) -> None:
    pytest.importorskip("kubernetes")
    with KubeServer() as server:
        path = write_kubeconfig(tmp_path / "kubeconfig", server.url)
        server.put(pod_object("pod-a", ip="127.0.0.1"))
        done = kvctl("pods", "-v", "--kubeconfig", path, "-l", "app=vllm", "--timeout", "0.5")
        url = f"{server.url}/api/v1/namespaces/prod/pods?labelSelector=app=vllm"
        assert re.search(rf"^> HTTP GET {re.escape(url)} 200 in \d+ ms$", done.err, re.M)
        assert TOKEN not in done.err


def test_verbose_counts_redis_commands_without_the_password(kvctl, url: str) -> None:
    kvctl("replay", "demo:warm", "--save", f"{url}?block_size=32")
    done = kvctl("-v", "index", "show", "--index", url)
    assert done.code == 0
    assert re.search(r"^> Redis 127.0.0.1:\d+: \d+ commands: .*\d+ SCAN", done.err, re.M)
    assert done.err.count(" HGETALL") == 1  # a sum, not a line each
    secret = kvctl("-v", "index", "show", "--index", url.replace("//", "//:hunter2@"))
    assert "> Redis" in secret.err
    assert "hunter2" not in secret.err


@pytest.mark.parametrize("behind", [False, True])
def test_color_is_as_it_was_asked_for(kvctl, behind: bool) -> None:
    def run(*color: str, **env: str) -> str:
        words = ["replay", "demo:fleet"]
        return kvctl(*([*words, *color] if behind else [*color, *words]), TERM="xterm", **env).out

    assert ESCAPE not in run()
    assert ESCAPE in run("--color", "always")
    assert ESCAPE in run("--color=always", NO_COLOR="1")
    assert ESCAPE not in run("--color", "never")


def test_a_terminal_has_color_unless_told_otherwise(terminal) -> None:
    def drawn(*words: str, **env: str) -> bytes:
        screen = terminal("replay", "demo:fleet", *words, **env)
        assert screen.end() == 0
        return screen.raw

    assert ESCAPE.encode() in drawn()
    assert ESCAPE.encode() not in drawn("--color", "never")
    assert ESCAPE.encode() not in drawn(NO_COLOR="1")
    assert ESCAPE.encode() in drawn("--color", "always", NO_COLOR="1")


def test_the_help_heeds_color_wherever_it_stands(kvctl, terminal) -> None:
    assert ESCAPE not in kvctl("tail", "--help").out
    assert ESCAPE in kvctl("tail", "--help", "--color", "always", TERM="xterm").out
    for words in (("--color", "never", "tail", "--help"), ("tail", "--help", "--color=never")):
        screen = terminal(*words)
        assert screen.end() == 0
        assert ESCAPE.encode() not in screen.raw


def test_a_color_that_is_none_is_refused(kvctl) -> None:
    done = kvctl("tail", "--color", "alwys")
    assert done.code == 2
    assert "did you mean always?" in done.err


def test_talk_breaks_between_words_on_a_terminal_only(kvctl, terminal) -> None:
    folder = "a-folder-whose-name-is-so-long-that-it-has-to-be-broken-by-anyone/" * 2
    words = ("replay", f"{folder}incident.kvcap")
    piped = kvctl(*words)
    assert len(piped.err.splitlines()) == 1
    screen = terminal(*words, columns=60)
    assert screen.end() == 1
    written = screen.raw.decode().replace("\r", "").splitlines()
    assert " ".join(written) == piped.err.strip()
    assert f"{folder}incident.kvcap" in " ".join(written)
    for line in written:
        assert len(line) <= 60 or " " not in line.strip()


def test_verbose_lines_stay_whole_on_a_terminal(terminal, pod: SimPod) -> None:
    screen = terminal("tail", "--pod", spec(pod), "--count", "1", "-v", columns=50)
    assert screen.end() == 0
    assert f"> ZMQ replay request to {pod.replay[0]} from seq 0\r\n" in screen.raw.decode()
