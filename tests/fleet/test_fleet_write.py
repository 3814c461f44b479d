"""`config.toml` changed in place."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kvctl.errors import UsageError
from kvctl.fleet import load_config, parse_pod, set_pod, use_context

BEFORE = """\
# Fleets of ours.
current-context = "prod"   # the usual one

[contexts.prod]            # do not touch at night
model = "llama"

[contexts.prod.pods.pod-b]
host = "10.0.0.8"          # rack 2

# For trying things out.
[contexts.dev.pods.pod-a]
events = "tcp://127.0.0.1:5557"
dp = 1
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(BEFORE)
    return path


def test_a_file_is_made_with_its_first_pod(tmp_path: Path) -> None:
    path = tmp_path / "new" / "config.toml"
    pod = set_pod("prod", "name=ns/pod-a,host=10.0.0.7,dp=2,replay=none,bind=false", path)
    assert pod == parse_pod("name=ns/pod-a,host=10.0.0.7,dp=2,replay=none,bind=false")
    assert path.read_text() == (
        'current-context = "prod"\n\n[contexts.prod.pods."ns/pod-a"]\n'
        'host = "10.0.0.7"\ndp = 2\nreplay = "none"\nbind = false\n'
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_config(path).context().pods == (pod,)


def test_using_a_context_changes_one_value_and_nothing_else(path: Path) -> None:
    assert use_context("dev", path).current == "dev"
    assert path.read_text() == BEFORE.replace('context = "prod"', 'context = "dev"')


def test_a_context_that_is_missing_is_not_used(path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no context 'dve' \(did you mean dev\?\)"):
        use_context("dve", path)
    assert path.read_text() == BEFORE


def test_a_current_context_that_is_gone_can_be_replaced(path: Path) -> None:
    path.write_text(BEFORE.replace('"prod"', '"gone"', 1))
    with pytest.raises(UsageError, match="has no context 'gone'"):
        load_config(path).context()
    assert use_context("dev", path).context().name == "dev"


def test_a_new_pod_leaves_comments_order_and_the_other_pods(path: Path) -> None:
    set_pod("prod", "name=pod-c,events=tcp://h:5557|tcp://h:5560", path)
    text = path.read_text()
    for line in BEFORE.splitlines():
        assert line in text
    config = load_config(path)
    assert [pod.name for pod in config.context("prod").pods] == ["pod-b", "pod-c"]
    assert config.context("dev").pods == (parse_pod("name=pod-a,events=tcp://127.0.0.1:5557"),)
    assert 'events = ["tcp://h:5557", "tcp://h:5560"]' in text
    assert config.current == "prod"


def test_fields_of_a_pod_are_replaced_one_by_one(path: Path) -> None:
    pod = set_pod("prod", "name=pod-b,replay=none,engine=sglang", path)
    assert pod == parse_pod("name=pod-b,host=10.0.0.8,replay=none,engine=sglang,model=llama")
    assert 'host = "10.0.0.8"          # rack 2' in path.read_text()
    assert set_pod("prod", "name=pod-b,replay=tcp://10.0.0.8:6000", path).streams[0].replay == (
        "tcp://10.0.0.8:6000"
    )


@pytest.mark.parametrize(
    "spec",
    [
        "name=pod-b,dp=2",  # collides with the replay assumed for its host
        "name=pod-b,dp=x",
        "name=pod-b,bind=perhaps",
        "name=new,model=m",
        "name=new,evnts=x",
        "name=a b,host=h",
    ],
)
def test_a_change_that_would_not_be_valid_is_not_written(path: Path, spec: str) -> None:
    with pytest.raises(UsageError):
        set_pod("prod", spec, path)
    assert path.read_text() == BEFORE


@pytest.mark.parametrize("name", ["", " a", "a\nb", "\x1b[1m"])
def test_a_context_needs_a_printable_name(path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="is not a context's name"):
        set_pod(name, "name=a,host=h", path)


def test_a_file_with_a_fault_is_not_changed(path: Path) -> None:
    path.write_text("[contexts.a]\nindx = 1\n")
    with pytest.raises(UsageError, match="unknown key 'indx'"):
        set_pod("a", "name=a,host=h", path)
    assert path.read_text() == "[contexts.a]\nindx = 1\n"


@pytest.mark.parametrize(
    "text",
    [
        "contexts = {prod = {pods = {pod-b = {host = 'h'}}}}\n",
        "contexts.prod.pods.pod-b.host = 'h'\n",
        "[contexts.prod.pods.pod-b]\nhost='h'\n[contexts.dev]\n[contexts.prod.pods.pod-z]\n"
        "host='z'\n",
        "[contexts.prod.pods]\n[contexts.dev]\nmodel = 'm'\n",
        "[contexts.prod]",
        "",
    ],
)
def test_every_way_to_write_a_table_can_be_added_to(path: Path, text: str) -> None:
    path.write_text(text)
    before = load_config(path)
    set_pod("prod", "name=pod-n,host=10.0.0.9", path)
    set_pod("other", "name=pod-n,host=10.0.0.9", path)
    after = load_config(path)
    new = parse_pod("name=pod-n,host=10.0.0.9")
    old = before.contexts["prod"].pods if "prod" in before.contexts else ()
    assert set(after.contexts["prod"].pods) == {*old, new}
    assert after.contexts["other"].pods == (new,)
    assert after.contexts.get("dev") == before.contexts.get("dev")


def test_a_file_that_cannot_be_changed_in_place_is_left_alone(path: Path) -> None:
    text = "[contexts]\nprod.pods.pod-b.host = 'h'\n"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"cannot be changed without writing it anew .edit it by"):
        set_pod("prod", "name=pod-n,host=10.0.0.9", path)
    assert path.read_text() == text


def test_a_link_to_the_file_stays_a_link(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.toml"
    link.symlink_to(path)
    use_context("dev", link)
    assert link.is_symlink()
    assert load_config(path).current == "dev"


def test_a_file_that_cannot_be_written_is_named_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot be (read|written): Not a directory"):
        set_pod("a", "name=a,host=h", tmp_path / "file" / "config.toml")
    loop = tmp_path / "loop.toml"
    loop.symlink_to(loop)
    with pytest.raises(UsageError, match=r"cannot be (read|written)"):
        set_pod("a", "name=a,host=h", loop)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["file", "loop.toml"]


def test_a_failed_replacement_keeps_the_old_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="cannot be written: No space left on device"):
        use_context("dev", path)
    assert path.read_text() == BEFORE
    assert [found.name for found in path.parent.iterdir()] == ["config.toml"]


def test_nothing_is_written_when_nothing_changes(path: Path) -> None:
    inode = path.stat().st_ino
    use_context("prod", path)
    assert path.stat().st_ino == inode
