# SPDX-License-Identifier: BSD-3-Clause
"""What the documents say about the tree is true of it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("benchmarks", "cli", "cmake", "docs", "examples", "include", "python", "src", "tests")
NAMED = re.compile(rf"`((?:{'|'.join(FOLDERS)}|tools)/[\w./-]+)`")


@pytest.mark.parametrize("document", ["HACKING.md", "CONTRIBUTING.md", "README.md"])
def test_named_paths_exist(document):
    paths = NAMED.findall((ROOT / document).read_text(encoding="utf-8"))
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_folder_of_sources_is_on_the_map():
    text = (ROOT / "HACKING.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([\w/]+/)`", text[: text.index("## Layers")], re.MULTILINE)
    folders = {
        f"{file.parent.relative_to(ROOT)}/"
        for top in FOLDERS
        for file in (ROOT / top).rglob("*.*")
        if file.suffix in {".cpp", ".cu", ".hpp", ".cuh", ".py", ".cmake"}
    }
    assert [f for f in sorted(folders) if not f.startswith(tuple(listed))] == []
