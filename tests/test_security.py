"""What must never be in the code, whatever it does. The rest of DESIGN's Security is tested where
it happens: tokens (tests/engine/test_engine_auth.py), TLS (test_engine_transport.py), file modes
(tests/capture/test_capture_writer.py), foreign keys (tests/index/test_redis_llmd.py), escapes
(tests/cli)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import kvctl

PACKAGE = Path(kvctl.__file__).parent
FORBIDDEN_MODULES = {"marshal", "shelve", "dill", "subprocess", "pty"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_METHODS = {
    # vLLM's block hash is made of pickled values; nothing is ever unpickled.
    ("pickle", "load"), ("pickle", "loads"), ("pickle", "Unpickler"),
    ("os", "system"), ("os", "popen"), ("yaml", "load"),
}  # fmt: skip


def sources() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield str(path.relative_to(PACKAGE)), ast.parse(path.read_text())


def faults(tree: ast.Module) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [each.name for each in node.names if each.name in FORBIDDEN_MODULES]
        elif isinstance(node, ast.ImportFrom) and node.module in FORBIDDEN_MODULES:
            found.append(node.module)
        elif isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id in FORBIDDEN_CALLS:
                found.append(called.id)
            if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
                name = (called.value.id, called.attr)
                if name in FORBIDDEN_METHODS:
                    found.append(".".join(name))
            for keyword in node.keywords:
                literal = isinstance(keyword.value, ast.Constant)
                if keyword.arg == "shell" and literal and keyword.value.value:
                    found.append("shell=True")
                if keyword.arg == "verify" and literal and keyword.value.value is False:
                    found.append("verify=False")
    return found


def test_nothing_is_unpickled_evaluated_or_given_to_a_shell() -> None:
    assert {name: found for name, tree in sources() if (found := faults(tree))} == {}


@pytest.mark.parametrize(
    "code",
    [
        "import pickle\npickle.loads(b'')",
        "from subprocess import run",
        "eval('1')",
        "import os\nos.system('x')",
        "f(shell=True)",
        "get(url, verify=False)",
    ],
)
def test_the_check_itself_finds_what_it_looks_for(code: str) -> None:
    assert faults(ast.parse(code))
