# SPDX-License-Identifier: BSD-3-Clause
"""The record of the GPU tests is what a script wrote: its last line holds the rest to that."""

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "docs" / "results" / "h200" / "gpu_tests.txt"
HEADER = "Written by tests/gpu/record.sh; not edited by hand.\n"
SUM = "sha256 of the lines above: "


def is_as_written(text):
    body, mark, digest = text.rpartition(SUM)
    return (
        text.startswith(HEADER)
        and bool(mark)
        and digest == hashlib.sha256(body.encode()).hexdigest() + "\n"
    )


@pytest.fixture
def bundle(tmp_path):
    shutil.copy(ROOT / "tests" / "gpu" / "record.sh", tmp_path)
    for name in ("run.sh", "device_codec", "sanitize.sh"):
        script = tmp_path / name
        script.write_text(f"#!/bin/sh\necho noise\necho '{name}: 3 passed'\n")
        script.chmod(0o755)
    return tmp_path


def record(bundle):
    done = subprocess.run(
        [bundle / "record.sh", bundle / "new" / "record.txt"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, (bundle / "new" / "record.txt").read_text()


def test_record_holds_every_part(bundle):
    status, text = record(bundle)
    assert status == 0
    for name in ("run.sh", "device_codec", "sanitize.sh"):
        assert f"{name}: exit status 0\n" in text and f"{name}: 3 passed\n" in text
    assert is_as_written(text)


@pytest.mark.parametrize("name", ["run.sh", "device_codec", "sanitize.sh"])
def test_failures_are_recorded(name, bundle):
    with (bundle / name).open("a") as script:
        script.write("exit 7\n")
    status, text = record(bundle)
    assert status == 1
    assert f"{name}: exit status 7\n" in text
    assert is_as_written(text)


@pytest.mark.parametrize("old, new", [("3 passed", "4 passed"), (HEADER, ""), (SUM, "")])
def test_an_edit_shows(old, new, bundle):
    _, text = record(bundle)
    assert not is_as_written(text.replace(old, new, 1))


def test_usage(bundle):
    done = subprocess.run([bundle / "record.sh"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "Usage: record.sh" in done.stdout


def test_the_record_of_the_repository_is_as_written():
    if not RECORD.exists():
        pytest.skip("no record of the GPU tests since the last change of the script that writes it")
    assert is_as_written(RECORD.read_text())
