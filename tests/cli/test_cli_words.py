"""The same words everywhere, and a wrong word answered with the right one."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path += [str(Path(__file__).parents[1] / name) for name in ("fleet", "operate", "cli")]

from driving import complete, spec
from examples import commands
from kube_engines import as_pod
from kube_server import KubeServer, pod_object, write_kubeconfig

from kvctl.sim import SimConfig, SimPod

# Where the same name stands for another thing: the commands that share that other thing.
OTHERWISE: dict[str, list[set[str]]] = {
    "--blocks": [{"sim"}],
    "--context": [{"config set-pod"}],
    "--count": [{"tail"}],
    "--index": [{"tail"}, {"reset", "sleep", "wake"}, {"config set-context"}],
    "--lora": [{"tail"}, {"index show"}],
    "--model": [{"index show"}, {"sim"}, {"config set-context"}],
    "--output": [{"report"}],
    "--pod": [{"index show", "replay", "report"}],
    "--save": [{"reproduce-2287"}],
    "--seed": [{"reproduce-2287"}],
    "--timeout": [{"tail"}, {"reset", "sleep", "wake"}],
}


@pytest.fixture
def pod() -> Iterator[SimPod]:
    with SimPod(SimConfig()) as pod:
        complete(pod)
        yield pod


def test_options_of_one_name_say_the_same() -> None:
    said: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name, command in commands():
        for option in command.params:
            for word in option.opts:
                said[word][option.help].add(name)
    for word, by_text in said.items():
        if word.startswith("--"):
            left = [names for names in by_text.values() if names not in OTHERWISE.get(word, [])]
            assert len(left) <= 1, (word, dict(by_text))


def test_every_option_stands_in_a_group() -> None:
    bare = [
        f"{name} {option.opts[0]}"
        for name, command in commands()
        for option in command.params
        if option.opts[0].startswith("--") and option.rich_help_panel is None
    ]
    assert bare == []


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("reconsile", "did you mean reconcile?"),
        ("index mach", "did you mean match?"),
        ("tail --capure x", "did you mean --capture?"),
        ("replay demo:fleet --router aibirx", "did you mean aibrix?"),
        ("tail pod-aa", "pod-a"),
        ("tail --context lap", "lab"),
        ("config use-context lap", "lab"),
    ],
)
def test_a_wrong_word_is_answered_with_the_right_one(
    kvctl, tmp_path: Path, words: str, wanted: str
) -> None:
    config = '[contexts.lab.pods.pod-a]\nhost = "127.0.0.1"\n'
    (tmp_path / "config.toml").write_text(f'current-context = "lab"\n{config}')
    told = kvctl(*words.split())
    assert (told.code, told.out) == (2, "")
    assert len(told.err.splitlines()) == 1
    assert wanted in told.err


@pytest.mark.parametrize("before", [True, False])
def test_quiet_leaves_the_data_and_the_errors(kvctl, pod, before: bool) -> None:
    words = ["tail", "--pod", spec(pod), "--timeout", "1"]
    loud = kvctl(*words)
    quiet = kvctl(*(["--quiet", *words] if before else [*words, "--quiet"]))
    assert loud.err
    assert (quiet.code, quiet.err) == (0, "")
    assert [each["seq"] for each in quiet.objects] == [each["seq"] for each in loud.objects]
    wrong = kvctl("tail", "--quiet", "--pod", "name=x")
    assert wrong.code == 2
    assert wrong.err


@pytest.mark.parametrize("before", [True, False])
def test_verbose_tells_of_the_wire_and_never_the_token(kvctl, pod, before: bool) -> None:
    words = ["reset", "--pod", spec(pod), "--yes", "--timeout", "1"]
    told = kvctl(*(["-v", *words] if before else [*words, "-v"]), KVCTL_API_KEY="s3kr1t")
    lines = [line for line in told.err.splitlines() if line.startswith("> ")]
    assert any(f"POST {pod.api}/reset_prefix_cache: 200" in line for line in lines)
    assert any("SUB connect to" in line for line in lines)
    assert any("replay from seq 0 asked for" in line for line in lines)
    assert "s3kr1t" not in told.err + told.out
    assert "> " not in kvctl(*words).err


def test_verbose_tells_of_redis(kvctl, url: str) -> None:
    told = kvctl("index", "show", "--index", url, "-v")
    assert any("SCAN" in line for line in told.err.splitlines())


def test_color_is_as_it_was_asked_for(kvctl) -> None:
    words = ["capture", "info", "demo:fleet"]
    assert "\x1b[" not in kvctl(*words).out
    assert "\x1b[" in kvctl(*words, "--color", "always").out
    assert "\x1b[" in kvctl("--color=always", *words).out
    assert "\x1b[" not in kvctl(*words, "--color", "never").out


def test_no_color_and_never_hold_in_a_terminal(terminal) -> None:
    def drawn(*words: str, **env: str) -> bytes:
        shown = terminal("replay", "demo:fleet", *words, columns=100, **env)
        assert shown.end() == 0
        return shown.raw

    assert b"\x1b[1m" in drawn()
    assert b"\x1b[" not in drawn("--color", "never")
    assert b"\x1b[" not in drawn(NO_COLOR="1")
    assert b"\x1b[1m" in drawn("--color", "always", NO_COLOR="1")


def test_talk_is_broken_between_words_on_a_terminal_only(kvctl, terminal) -> None:
    words = ["index", "show", "--index", "dynamo+http://127.0.0.1:1/" + "x" * 100]
    piped = kvctl(*words)
    assert len(piped.err.splitlines()) == 1
    shown = terminal(*words, columns=80)
    assert shown.end() == piped.code
    assert " ".join(shown.text.split()).replace(" ", "") == piped.err.replace(" ", "").strip()


def test_pods_that_kubernetes_has_and_kvctl_cannot_use_are_told_in_json(
    kvctl, pod, tmp_path: Path
) -> None:
    with KubeServer() as server:
        server.put(as_pod(pod))
        server.put(pod_object("pod-d", phase="Pending", ip=None))
        config = write_kubeconfig(tmp_path / "kubeconfig", server.url)
        told = kvctl(
            "pods", "--kubeconfig", config, "-n", "prod", "-l", "app=vllm", "-o", "json"
        ).json
        assert [each["pod"] for each in told["pods"]] == ["prod/pod-a"]
        assert told["skipped"] == [{"pod": "prod/pod-d", "reason": "it is not running (Pending)"}]


def test_a_context_may_be_in_kubernetes(kvctl, pod, tmp_path: Path) -> None:
    with KubeServer() as server:
        server.put(as_pod(pod))
        config = write_kubeconfig(tmp_path / "kubeconfig", server.url)
        made = kvctl(
            "config", "set-context", "cloud", "-n", "prod", "-l", "app=vllm",
            "--kubeconfig", config,
        )  # fmt: skip
        assert made.code == 0
        told = kvctl("pods", "--context", "cloud", "-o", "json")
        assert [each["pod"] for each in told.json["pods"]] == ["prod/pod-a"]
        forwarded = kvctl("config", "set-context", "cloud", "--port-forward")
        assert "--port-forward" in forwarded.err
        assert json.loads(kvctl("config", "view", "-o", "json").out)["contexts"]["cloud"]
