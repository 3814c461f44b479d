"""Where the token comes from, and that it is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvctl.engine import api_key
from kvctl.errors import UsageError

SECRET = "sk-very-secret-0123456789"


def test_no_token_is_set() -> None:
    assert api_key(environ={}) is None
    assert api_key(environ={"KVCTL_API_KEY": "", "KVCTL_API_KEY_FILE": ""}) is None


def test_the_variable_goes_before_its_file_and_the_contexts(tmp_path: Path) -> None:
    named, context = tmp_path / "named", tmp_path / "context"
    named.write_text("from-named\n")
    context.write_text("from-context\n")
    environ = {"KVCTL_API_KEY": SECRET, "KVCTL_API_KEY_FILE": str(named)}
    assert api_key(context, environ=environ) == SECRET
    del environ["KVCTL_API_KEY"]
    assert api_key(context, environ=environ) == "from-named"
    assert api_key(context, environ={}) == "from-context"


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVCTL_API_KEY", SECRET)
    assert api_key() == SECRET


@pytest.mark.parametrize("content", [f"{SECRET}\n", f"{SECRET}\r\n", f"  {SECRET}\n\n", SECRET])
def test_a_files_white_space_is_not_the_token(tmp_path: Path, content: str) -> None:
    path = tmp_path / "key"
    path.write_bytes(content.encode())
    assert api_key(path, environ={}) == SECRET


@pytest.mark.parametrize(
    "token",
    [f"{SECRET}\r\nX-Evil: 1", f"{SECRET}\x00", f"{SECRET} two", f"{SECRET}é", f"{SECRET}\x1b[31m"],
)
def test_a_token_no_header_can_carry_is_refused_unseen(tmp_path: Path, token: str) -> None:
    path = tmp_path / "key"
    path.write_text(token)
    for key_file, environ in ((path, {}), (None, {"KVCTL_API_KEY": token})):
        with pytest.raises(UsageError, match="no token has") as caught:
            api_key(key_file, environ=environ)
        assert SECRET not in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"missing' cannot be read: No such file"):
        api_key(tmp_path / "missing", environ={})
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        api_key(tmp_path, environ={})
    with pytest.raises(UsageError, match="cannot be read: not a path"):
        api_key("a\x00b", environ={})
    with pytest.raises(UsageError, match="cannot be read: not a path"):
        api_key("~nobody-of-that-name/key", environ={})


def test_an_empty_or_a_huge_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("\n")
    with pytest.raises(UsageError, match="is empty"):
        api_key(path, environ={})
    path.write_bytes(b"x" * 65537)
    with pytest.raises(UsageError, match="too large"):
        api_key(path, environ={})
