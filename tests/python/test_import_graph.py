# SPDX-License-Identifier: BSD-3-Clause
"""The modules of the package depend on each other in one direction only."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import open_vc_attn

FOLDER = Path(open_vc_attn.__file__).parent


def imported_modules(source: str, names: set[str]) -> set[str]:
    """Modules of the package that a source text imports anywhere, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            parts = (node.module or "").split(".")
            if node.level == 0 and parts[0] != "open_vc_attn":
                continue
            inner = parts if node.level else parts[1:]
            inner = [part for part in inner if part]
            found |= {inner[0]} if inner else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            parts = [alias.name.split(".") for alias in node.names]
            found |= {part[1] for part in parts if part[0] == "open_vc_attn" and len(part) > 1}
    return found & names


def import_graph(sources: dict[str, str]) -> dict[str, set[str]]:
    return {name: imported_modules(text, set(sources)) for name, text in sources.items()}


@pytest.mark.parametrize(
    "folder, known, uses",
    [
        (FOLDER, "_torch_arrays", "_arrays"),
        (FOLDER / "quality", "study", "model"),
        (FOLDER / "planning", "plan", "measure"),
        (FOLDER / "integrations", "_dispatch", "_serve"),
    ],
)
def test_no_import_cycle(folder, known, uses):
    sources = {path.stem: path.read_text() for path in folder.glob("*.py")}
    graph = import_graph(sources)
    assert uses in graph[known], "the graph has lost its edges"
    tuple(TopologicalSorter(graph).static_order())


@pytest.mark.parametrize(
    "back",
    [
        "from ._a import x",
        "from . import _a",
        "def f():\n    from ._a import x",
        "def f():\n    from . import _b, _a",
        "class C:\n    import open_vc_attn._a",
        "if x:\n    from open_vc_attn._a import y",
        "from open_vc_attn import _a as other",
    ],
)
def test_a_cycle_is_found_wherever_the_import_stands(back):
    graph = import_graph({"_a": "from ._b import y", "_b": back})
    with pytest.raises(CycleError):
        tuple(TopologicalSorter(graph).static_order())
