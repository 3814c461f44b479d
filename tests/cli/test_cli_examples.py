"""Every help has examples, and every example does what a reader would expect: it runs."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path += [str(Path(__file__).parents[1] / name) for name in ("fleet", "operate", "cli")]

from examples import World, commands, world

# What runs until it is stopped, and after how many seconds of showing something that is.
ENDLESS = {
    "kvctl tail": 3.0,
    "kvctl top": 3.0,
    "kvctl sim": 3.0,
    "kvctl reconcile --index fleet.sqlite --watch": 3.0,
    "kvctl replay demo:fleet --publish": 4.0,
    "kvctl reproduce-2287 --pod-a": 6.0,
}
# What finds that something is not as it should be, which the example is there to show.
DRIFT = ("kvctl index diff", "kvctl reset", "kvctl sleep", "kvctl wake", "kvctl reconcile",
         "kvctl doctor")  # fmt: skip
# What an example needs in the place of what the world has otherwise.
FILES = {"incident.kvcap.zst": "old.kvcap.zst"}

EXAMPLES = [
    pytest.param(example, id=re.sub(r"\s+", " ", example.replace("\\\n", "")))
    for _name, command in commands()
    for example in command.examples
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    with world(folder, "redis://127.0.0.1:1/0"):
        return folder


@pytest.fixture
def there(tmp_path: Path, url: str, files: Path) -> Iterator[World]:
    with world(tmp_path, f"{url}?block_size=16", files) as made:
        yield made


def test_every_command_has_examples() -> None:
    assert [name for name, command in commands() if not command.examples] == []


def test_every_example_is_of_its_command() -> None:
    for name, command in commands():
        for example in command.examples:
            assert example.startswith(f"kvctl {name}"), example


@pytest.mark.parametrize("example", EXAMPLES)
def test_it_runs(there: World, tmp_path: Path, example: str) -> None:
    if "| jq" in example and shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    if "--capture" not in example:
        for name, source in FILES.items():
            shutil.copy(tmp_path / source, tmp_path / name)
    if "public.kvcap --key-file" in example:
        (tmp_path / "public.kvcap").touch()
    if "redis://" in example:
        assert there.run("kvctl tail --index redis://10.0.0.2:6379/0 --timeout 1").code == 0
    if "set-context" in example:
        (tmp_path / "config.toml").unlink()
    stop = next((s for begin, s in ENDLESS.items() if example.startswith(begin)), None)
    if "--timeout" in example or "-n 1" in example:
        stop = 8.0 if "--timeout 60" in example else None
    ended = there.run(example, stop_after=stop)
    allowed = {0, 3} if example.startswith(DRIFT) else {0}
    allowed |= {130} if stop is not None else set()
    assert ended.code in allowed, f"{ended.code}\n{ended.out}\n{ended.err}"
    assert "Traceback" not in ended.err
    assert "kvctl: " not in ended.err.replace("kvctl: warning: ", ""), ended.err
    if ended.code != 130 and not re.search(r"[|>]", example):
        assert ended.out or ended.err, "it shows nothing"
