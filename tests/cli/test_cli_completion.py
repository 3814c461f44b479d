"""Completion in real shells, loaded as it is shipped and as it is installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path += [str(Path(__file__).parents[1] / "fleet"), str(Path(__file__).parent)]

from kube_server import KubeServer, pod_object, write_kubeconfig
from shells import ROOT, SHIPPED, Shell

from kvctl.cli.completing import quoted, split_line
from kvctl.fleet import load_config

SHELLS = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed"),
    )
    for name in SHIPPED
]
HOSTILE = "a b$(touch pwned);`x`'\"*"
CONFIG = """
current-context = "lab"
[contexts.lab]
index = "redis://10.0.0.2:6379/0"
[contexts.lab.pods.pod-a]
host = "10.0.0.7"
[contexts.lab.pods.pod-b]
host = "10.0.0.8"
[contexts.prod.pods.web-1]
host = "10.0.0.9"
[contexts."a b$(touch pwned);`x`'\\"*".pods."evil$(touch$IFS'pwned')"]
host = "10.0.0.10"
[contexts."bell\\u0007".pods.pod-x]
host = "10.0.0.11"
[contexts.cloud.kubernetes]
namespace = "prod"
selector = "app=vllm"
kubeconfig = "kubeconfig"
"""

Open = Callable[..., Shell]


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    """A folder with files of all kinds."""
    folder = tmp_path / "work"
    (folder / "folder").mkdir(parents=True)
    for name in (
        "incident.kvcap", "old.kvcap.zst", "rec.jsonl", "notes.txt", "fleet.sqlite",
        ".hidden.kvcap", "it's $(x).kvcap", "folder/in.kvcap",
    ):  # fmt: skip
        (folder / name).touch()
    return folder


@pytest.fixture
def open_shell(tmp_path: Path, cwd: Path) -> Iterator[Open]:
    """Open a shell of that name, in the folder, with the contexts of `CONFIG`."""
    config = tmp_path / "config.toml"
    config.write_text(CONFIG)
    shells: list[Shell] = []

    def open_one(name: str, *, installed: bool = False, **env: str) -> Shell:
        settings = {"KVCTL_CONFIG": str(config)} | env
        shells.append(Shell(name, tmp_path / "home", cwd, settings, installed=installed))
        return shells[-1]

    yield open_one
    for each in shells:
        each.close()


@pytest.mark.parametrize("name", SHELLS)
def test_commands_options_and_values_are_completed(open_shell: Open, name: str) -> None:
    shell = open_shell(name)
    shell.becomes("kvctl repl", "kvctl replay ")
    shell.becomes("kvctl index ma", "kvctl index match ")
    shell.becomes("kvctl --quiet do", "kvctl --quiet doctor ")
    shell.becomes("kvctl tail --conte", "kvctl tail --context ")
    shell.becomes("kvctl tail --qui", "kvctl tail --quiet ")
    shell.becomes("kvctl replay --router ai", "kvctl replay --router aibrix ")
    shell.becomes("kvctl tail --preset=ll", "kvctl tail --preset=llm-d ")
    shell.becomes("kvctl sleep --level 1 --mode ab", "kvctl sleep --level 1 --mode abort ")
    shell.becomes("kvctl tail --pod name=x,ho", "kvctl tail --pod name=x,host=")
    shell.offers("kvctl ", "tail", "replay", "completion", "capture")
    shell.offers("kvctl tail --capture x --", "--context", "--namespace", "--verbose")
    shown = shell.offers("kvctl replay -o ", "table", "jsonl")
    assert "demo:" not in shown


@pytest.mark.parametrize("name", SHELLS)
def test_pods_and_contexts_are_those_of_the_configuration(open_shell: Open, name: str) -> None:
    shell = open_shell(name)
    shown = shell.offers("kvctl tail ", "pod-a", "pod-b")
    assert "web-1" not in shown
    assert "folder" not in shown
    shell.becomes("kvctl tail --context prod ", "kvctl tail --context prod web-1 ")
    shell.becomes("kvctl tail --context=pr", "kvctl tail --context=prod ")
    shell.becomes("kvctl pods pod-a ", "kvctl pods pod-a pod-b ")
    shell.becomes("kvctl config use-context pr", "kvctl config use-context prod ")
    shell.becomes("kvctl index match 1,2 --running pod-a", "kvctl index match 1,2 --running pod-a=")
    shell.becomes("kvctl index show --index red", "kvctl index show --index redis://")
    shown = shell.offers("kvctl tail --context ", "lab", "prod", "cloud")
    assert "bell" not in shown
    other = open_shell(name, KVCTL_CONTEXT="prod")
    other.becomes("kvctl reset ", "kvctl reset web-1 ")


@pytest.mark.parametrize("name", SHELLS)
def test_captures_are_files_folders_and_shipped_recordings(open_shell: Open, name: str) -> None:
    shell = open_shell(name)
    shown = shell.offers(
        "kvctl replay ", "demo:fleet", "incident.kvcap", "old.kvcap.zst", "rec.jsonl", "folder/"
    )
    assert "notes" not in shown
    assert "hidden" not in shown
    shell.becomes("kvctl replay demo:fl", "kvctl replay demo:fleet ")
    shell.becomes("kvctl replay fo", "kvctl replay folder/")
    shell.becomes("kvctl replay folder/", "kvctl replay folder/in.kvcap ")
    shell.becomes("kvctl replay ../work/in", "kvctl replay ../work/incident.kvcap ")
    shell.becomes("kvctl replay ~/../work/fo", "kvctl replay ~/../work/folder/")
    shell.becomes("kvctl index diff fle", "kvctl index diff fleet.sqlite ")
    shell.becomes("kvctl index diff capture:inc", "kvctl index diff capture:incident.kvcap ")
    # bash closes the quote and leaves the space to be typed.
    end = '"' if name == "bash" else '" '
    shell.becomes('kvctl replay "demo:fl', f'kvctl replay "demo:fleet{end}')


@pytest.mark.parametrize("name", SHELLS)
def test_hostile_names_are_only_names(open_shell: Open, name: str, cwd: Path) -> None:
    shell = open_shell(name)
    shell.becomes("kvctl replay it", r"kvctl replay it\'s\ \$\(x\).kvcap ")
    shell.runs("kvctl replay it\t", "it's $(x).kvcap is empty")
    config = cwd.parent / "config.toml"
    for typed in ("a", '"a', "'a"):
        config.write_text(CONFIG)
        shell.runs(f"kvctl config use-context {typed}\t", "current context is")
        assert load_config(config).current == HOSTILE
    # It is the current one now: its pod's name is a command.
    shell.runs("kvctl reset evil\t --dry-run", "evil$(touch$IFS'pwned'): would reset")
    assert not (cwd / "pwned").exists()


@pytest.mark.parametrize("name", SHELLS)
def test_what_is_wrong_prints_nothing(open_shell: Open, name: str, tmp_path: Path) -> None:
    shell = open_shell(name)
    shell.offers_nothing("kvctl tail --context nope ")
    shell.offers_nothing("kvctl nope ")
    shell.offers_nothing("kvctl replay nowhere/")
    shell.offers_nothing("kvctl tail --context cloud ")  # it has no kubeconfig
    (tmp_path / "config.toml").write_text("[contexts.lab\n")
    shell.offers_nothing("kvctl tail ")
    shell.offers_nothing("kvctl config use-context ")
    shell.becomes("kvctl repl", "kvctl replay ")
    (tmp_path / "config.toml").unlink()
    shell.offers_nothing("kvctl tail ")


@pytest.mark.parametrize("name", SHELLS)
def test_pods_of_a_context_in_kubernetes_are_listed(
    open_shell: Open, name: str, tmp_path: Path
) -> None:
    pytest.importorskip("kubernetes")
    with KubeServer() as server:
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        server.put(pod_object("llama-0"))
        server.put(pod_object("other-0", labels={"app": "web"}))
        shell = open_shell(name)
        shell.becomes("kvctl tail --context cloud ", "kvctl tail --context cloud prod/llama-0 ")
        shell.becomes("kvctl tail --context cloud lla", "kvctl tail --context cloud llama-0 ")
        kube = "--kubeconfig ../kubeconfig"
        shell.becomes(
            f"kvctl tail {kube} --kube-context l", f"kvctl tail {kube} --kube-context lab "
        )


@pytest.mark.parametrize("name", SHELLS)
def test_it_works_where_it_was_installed(
    open_shell: Open, kvctl, name: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".bashrc").write_text("# mine")
    for _ in range(2):  # again is no harm
        done = kvctl("completion", name, "--install", HOME=str(home), XDG_DATA_HOME="",
                     XDG_CONFIG_HOME="", ZDOTDIR="")  # fmt: skip
        assert done.code == 0
    assert (home / ".bashrc").read_text().startswith("# mine\n" if name == "bash" else "# mine")
    assert (home / ".bashrc").read_text().count("source") == (name == "bash")
    shell = open_shell(name, installed=True)
    shell.becomes("kvctl repl", "kvctl replay ")
    shell.offers("kvctl tail ", "pod-a", "pod-b")


def test_an_install_that_cannot_write_is_an_error(kvctl, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = kvctl("completion", "fish", "--install", XDG_CONFIG_HOME=str(tmp_path / "file"))
    assert done.code == 1
    assert (
        "cannot be written: Not a directory (kvctl completion fish prints the script)" in done.err
    )


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_files_are_current(kvctl, name: str) -> None:
    assert (ROOT / "completions" / SHIPPED[name]).read_text() == kvctl("completion", name).out


def test_nobody_waits_for_an_api_server_that_does_not_answer(tmp_path: Path, cwd: Path) -> None:
    """The pods are asked for within the patience, and then there are none."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        write_kubeconfig(tmp_path / "kubeconfig", f"http://127.0.0.1:{port}")
        (tmp_path / "config.toml").write_text(CONFIG)
        settings = {"KVCTL_CONFIG": str(tmp_path / "config.toml"), "_KVCTL_COMPLETE": "fish"}
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "kvctl", "tail", "--context", "cloud", ""],
            env=os.environ | settings,
            cwd=cwd,
            capture_output=True,
            check=False,
            timeout=60,
        )
        took = time.monotonic() - began
    assert (done.stdout, done.stderr, done.returncode) == (b"", b"", 1)
    assert took < 12  # the list itself would be waited for 30 s


def test_completing_loads_nothing_heavy(tmp_path: Path) -> None:
    heavy = ["zmq", "requests", "msgspec", "rich.console", "pydantic", "kubernetes", "tomlkit"]
    (tmp_path / "config.toml").write_text(CONFIG)
    script = (
        "import sys, typer; from kvctl.cli.main import app; "
        "from kvctl.cli.completing import candidates; root = typer.main.get_command(app); "
        "assert [each.value for each in candidates(root, ['tail'], '')] == ['pod-a', 'pod-b']; "
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"KVCTL_CONFIG": str(tmp_path / "config.toml")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("line", "words", "last", "quote"),
    [
        ("kvctl tail ", ["kvctl", "tail"], "", ""),
        ("kvctl tail po", ["kvctl", "tail"], "po", ""),
        ('kvctl "a b" c\\ d\'e', ["kvctl", "a b"], "c\\ d'e", "'"),
        ('kvctl "a \\" b', ["kvctl"], '"a \\" b', '"'),
        ("kvctl it\\'s", ["kvctl"], "it\\'s", ""),
        ("kvctl 'x'\"y\"z w", ["kvctl", "xyz"], "w", ""),
        ("kvctl a\\", ["kvctl"], "a\\", ""),
        ("kvctl  two   spaces", ["kvctl", "two"], "spaces", ""),
    ],
)
def test_a_line_of_bash_is_split_as_bash_does(
    line: str, words: list[str], last: str, quote: str
) -> None:
    assert split_line(line) == (words, last, quote)


@pytest.mark.parametrize("quote", ["", '"', "'"])
def test_a_quoted_word_is_the_word_again(quote: str) -> None:
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    word = HOSTILE + "!#~{}[]<>|&\\ \u00fc?"
    told = f"printf %s {quote}{quoted(word, quote)}{quote}"
    done = subprocess.run(["bash", "+H", "-c", told], capture_output=True, text=True, check=True)
    # Only an interactive bash has a use for the backslash before an exclamation mark.
    assert done.stdout.replace("\\!", "!") == word
