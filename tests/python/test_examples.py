# SPDX-License-Identifier: BSD-3-Clause
"""The example programs from the outside."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the examples are not here")


def run_here(name, *arguments):
    """Runs an example in this process, which has torch already; gives its exit status."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [name, *arguments])
        try:
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        except SystemExit as end:
            return end.code
    return 0


def run(folder, *arguments):
    path = os.pathsep.join(sys.path)  # the example finds the package that is tested
    return subprocess.run(
        [sys.executable, EXAMPLES / "capture_model.py", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        timeout=300,
    )


@pytest.mark.parametrize(
    "arguments, status, words",
    [(["--help"], 0, "where the captures go"), (["--nope"], 2, "--nope"), (["a", "b"], 2, "b")],
)
def test_capture_model_explains_itself(
    tmp_path, torch, monkeypatch, capsys, arguments, status, words
):
    monkeypatch.chdir(tmp_path)
    assert run_here("capture_model.py", *arguments) == status
    captured = capsys.readouterr()
    assert words in (captured.out if status == 0 else captured.err)
    assert list(tmp_path.iterdir()) == []


def test_capture_model_measures_what_it_records(tmp_path, torch):
    result = run(tmp_path, "here")
    assert result.returncode == 0, result.stderr
    files = sorted((tmp_path / "here").iterdir())
    assert files and result.stdout.count("relative L2 error") == len(files)


@pytest.mark.parametrize(
    "name, words",
    [
        ("switch_module.py", ["4 calls in FP8, 0 elsewhere", "as before: True"]),
        ("switch_diffusers.py", ["8 calls in FP8, 56 elsewhere"]),
    ],
)
def test_switches_report(name, words, torch, capsys):
    if "diffusers" in name:
        pytest.importorskip("diffusers", minversion="0.36")
    assert run_here(name) == 0
    out = capsys.readouterr().out
    assert [word for word in words if word not in out] == []
