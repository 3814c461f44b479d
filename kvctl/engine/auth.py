"""The Bearer token for engines, from the environment or a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kvctl.errors import UsageError

KEY_VARIABLE = "KVCTL_API_KEY"
KEY_FILE_VARIABLE = "KVCTL_API_KEY_FILE"

_LIMIT = 64 * 1024


def api_key(
    key_file: str | Path | None = None, *, environ: Mapping[str, str] = os.environ
) -> str | None:
    """The token to send to engines, None where none is set.

    The first of these that is set: ``KVCTL_API_KEY``; the file that ``KVCTL_API_KEY_FILE`` names;
    ``key_file`` (a context's ``api-key-file``). White space around the token, such as a file's
    last newline, does not count. Raises `UsageError`, which never shows the token, for a file
    that cannot be read or holds nothing, and for a token that no HTTP header can carry.
    """
    if token := environ.get(KEY_VARIABLE, "").strip():
        return _checked(token, KEY_VARIABLE)
    named = environ.get(KEY_FILE_VARIABLE) or key_file
    return _read(Path(named)) if named else None


def _read(path: Path) -> str:
    try:
        with path.expanduser().open("rb") as file:
            content = file.read(_LIMIT + 1)
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise UsageError(f"the API key file {str(path)!r} cannot be read: {reason}") from None
    if len(content) > _LIMIT:
        raise UsageError(f"the API key file {str(path)!r} is too large to hold a token")
    token = content.decode("utf-8", "replace").strip()
    if not token:
        raise UsageError(f"the API key file {str(path)!r} is empty")
    return _checked(token, f"the API key file {str(path)!r}")


def _checked(token: str, source: str) -> str:
    if not all("!" <= character <= "~" for character in token):
        raise UsageError(
            f"{source} holds characters that no token has",
            remedy="it must be one line of printable ASCII without spaces",
        )
    return token
