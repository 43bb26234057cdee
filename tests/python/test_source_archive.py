# SPDX-License-Identifier: BSD-3-Clause
"""The source archive (sdist) of the package."""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILT_FROM = (
    *("CMakeLists.txt", "VERSION", "pyproject.toml", "LICENSE", "NOTICE", "README.md"),
    *("cli", "cmake", "include", "python", "src"),
)


def test_source_archive_holds_what_the_build_reads(tmp_path):
    pytest.importorskip("scikit_build_core")
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", *BUILT_FROM], capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("the tests are not in a git repository")
    code = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, tmp_path], cwd=ROOT, check=True, timeout=300)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    expected = {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    assert expected - names == set()
