"""The layers of the architecture: each module imports only from those below its own."""

from __future__ import annotations

import ast
from pathlib import Path

import kvctl

PACKAGE = Path(kvctl.__file__).parent
# From the top down; DESIGN's order.
LAYERS = [
    "cli", "reproduce", "report", "operate", "router", "fleet", "engine", "stream", "index",
    "capture", "events",
]  # fmt: skip
SHARED = {"errors", "lazy", "text", "__init__"}


def imported_layers(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("kvctl.")}
    return found


def test_imports_go_only_downwards() -> None:
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        layer = path.relative_to(PACKAGE).parts[0]
        if layer == "sim":
            allowed = {"sim", "events"}
        elif layer in LAYERS:
            allowed = set(LAYERS[LAYERS.index(layer) :]) | (
                {"sim"} if layer in LAYERS[:2] else set()
            )
        else:
            continue
        for used in imported_layers(path) - allowed - SHARED:
            wrong.append(f"{path.relative_to(PACKAGE)} imports kvctl.{used}")
    assert wrong == []


def test_every_folder_is_a_layer() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders <= {*LAYERS, "sim"}
