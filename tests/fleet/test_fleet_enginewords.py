"""Command lines of engines, as manifests write them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvctl.fleet.enginewords import EngineWords, engine_of, read_words

CONFIG = {
    "enable_kv_cache_events": True,
    "publisher": "zmq",
    "endpoint": "tcp://*:6557",
    "replay_endpoint": "tcp://*:6558",
}
EVENTS = ["--kv-events-config", json.dumps(CONFIG)]


@pytest.mark.parametrize(
    "words",
    [
        ["vllm", "serve", "m", "--port", "8200", *EVENTS],
        ["vllm", "serve", "m", "--port=8200", f"--kv_events_config={json.dumps(CONFIG)}"],
        ["python3", "-m", "vllm.entrypoints.openai.api_server", *EVENTS, "--port", "8200"],
        ["sh", "-c", f"exec vllm serve m \\\n  --port 8200 \\\n --kv-events-config '{EVENTS[1]}'"],
        [
            "vllm", "serve", "--port", "8200", "--kv-events-config.enable_kv_cache_events", "True",
            "--kv-events-config.endpoint", "tcp://*:6557",
            "--kv-events-config.replay_endpoint=tcp://*:6558",
        ],
    ],
)  # fmt: skip
def test_ports_are_read_however_they_are_written(words: list[str]) -> None:
    read = read_words(words)
    assert read.engine == "vllm"
    assert read.number("--port") == 8200
    assert str(read.endpoint("endpoint")) == "tcp://*:6557"
    assert str(read.endpoint("replay_endpoint")) == "tcp://*:6558"
    assert not read.silent


def test_the_sidecars_port_is_not_the_engines() -> None:
    sidecar = ["--port=8000", "--vllm-port=8200", "--connector=nixlv2"]
    assert engine_of([sidecar, ["vllm", "serve", "m", "--port", "8200"]]).number("--port") == 8200
    assert engine_of([sidecar, ["--model", "m", *EVENTS]]).endpoint("endpoint") is not None
    assert engine_of([sidecar]) == EngineWords()


@pytest.mark.parametrize(
    ("config", "silent"),
    [
        ({"enable_kv_cache_events": True}, False),
        ({"enable_kv_cache_events": True, "publisher": "zmq"}, False),
        ({"enable_kv_cache_events": True, "publisher": "null"}, True),
        ({"enable_kv_cache_events": False, "publisher": "zmq"}, True),
        ({"endpoint": "tcp://*:5557"}, True),
    ],
)
def test_vllm_publishes_only_what_is_enabled(config: dict[str, object], silent: bool) -> None:
    assert read_words(["vllm", "--kv-events-config", json.dumps(config)]).silent is silent


def test_sglang_publishes_whatever_is_configured() -> None:
    words = ["python", "-m", "sglang.launch_server", "--kv-events-config", '{"publisher": "zmq"}']
    assert read_words(words).engine == "sglang"
    assert not read_words(words).silent


@pytest.mark.parametrize(
    "value", ["$(EVENTS)", "{", "[]", "7", '"x"', "{}", "", '{"endpoint": 7}', "[" * 100_000]
)
def test_a_configuration_that_cannot_be_read_tells_nothing(value: str) -> None:
    read = read_words(["vllm", "serve", "--kv-events-config", value])
    assert read.endpoint("endpoint") is None


@pytest.mark.parametrize("value", ["0", "-1", "$(PORT)", "", "8e3", "99999999"])
def test_what_is_no_number_is_not_told(value: str) -> None:
    assert read_words(["vllm", "serve", "--port", value]).number("--port") is None


@given(st.lists(st.text(max_size=30)))
def test_no_command_line_is_too_strange(words: list[str]) -> None:
    read_words(words)
