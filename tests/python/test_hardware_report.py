# SPDX-License-Identifier: BSD-3-Clause
"""The kit for whoever has a GPU that this library has not run on: programs here are doubles."""

import json
import os
import re
import subprocess
import tarfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "hardware_report.sh"
PARTS = "build device info first-use check gpu-tests codec sanitizer python-tests soak benchmark"

NVIDIA_SMI = """
case $1 in
  -q) printf 'Product Name : B200\\nSerial Number : 1654\\nGPU UUID : GPU-77\\nProcesses\\nmine\\n' ;;
  *) echo 'NVIDIA B200' ;;
esac
"""


def program(folder, name, text):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def machine(tmp_path):
    """What a machine with a GPU has; gives a function that runs the kit there."""
    tools, bundle = tmp_path / "bin", tmp_path / "bundle"
    program(tools, "nvidia-smi", NVIDIA_SMI)
    program(tools, "compute-sanitizer", "echo sanitizer")
    program(tools, "python", "echo python $*")
    for name in ("openvc_gpu_tests", "device_codec", "run.sh", "sanitize.sh"):
        program(bundle, name, "echo '5 passed, 0 failed'")
    program(bundle, "open-vc-attn", 'echo "$1 self-check $OPEN_VC_ATTN_SELF_CHECK"')
    (bundle / "commit.txt").write_text("abc\n")

    def run(*arguments, **environment):
        path = f"{tools}:/usr/bin:/bin"
        command = [SCRIPT, "--folder", tmp_path / "found", "--bundle", bundle]
        return subprocess.run(
            [*command, "--out", tmp_path / "sent.tar.gz", *arguments],
            env={**os.environ, "PATH": path, "PYTHON": str(tools / "python"), **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )

    run.tools, run.bundle, run.folder = tools, bundle, tmp_path
    return run


def verdicts(folder):
    """Of every part, out of the archive."""
    with tarfile.open(folder / "sent.tar.gz") as archive:
        names = {name.partition("/")[2]: name for name in archive.getnames()}
        parts = json.load(archive.extractfile(names["parts.json"]))
        files = {
            short: archive.extractfile(name).read().decode()
            for short, name in names.items()
            if short.endswith(".txt")
        }
    return {name: part["verdict"] for name, part in parts.items()}, files


def test_runs_every_part_and_packs_what_it_found(machine):
    done = machine()
    assert done.returncode == 0, done.stdout + done.stderr
    found, files = verdicts(machine.folder)
    assert found == dict.fromkeys(PARTS.split(), "passed")
    assert set(files) >= {"summary.txt", "versions.txt", "nvidia-smi-q.txt", "logs/soak.txt"}
    assert "commit: abc" in files["versions.txt"]
    assert files["logs/first-use.txt"] == "check self-check 1\n"
    assert files["logs/check.txt"] == "check self-check 0\n"
    assert "NVIDIA B200" in files["summary.txt"]
    assert re.search(r"^\[ 6/11\] gpu-tests +passed, \d+ s: 5 passed", done.stdout, re.M)
    assert "--commit abc" in files["logs/benchmark.txt"]


def test_leaves_out_what_names_a_machine(machine):
    assert machine("--only", "device").returncode == 0
    _, files = verdicts(machine.folder)
    report = files["nvidia-smi-q.txt"]
    assert "Product Name : B200" in report
    for word in ("1654", "GPU-77", "mine"):
        assert word not in report


def test_a_part_that_fails_or_hangs_does_not_stop_the_others(machine):
    program(machine.bundle, "run.sh", "echo '3 passed, 2 failed'; exit 1")
    program(machine.bundle, "sanitize.sh", "sleep 30")
    done = machine(OPENVC_PART_SECONDS="1")
    assert done.returncode == 1
    found, files = verdicts(machine.folder)
    wrong = {name for name, verdict in found.items() if verdict == "failed"}
    assert wrong == {"gpu-tests", "sanitizer"}
    assert found["benchmark"] == "passed"
    assert re.search(r"^gpu-tests +failed .*3 passed, 2 failed", files["summary.txt"], re.M)
    assert re.search(r"^sanitizer +failed .*stopped after 1 s", files["summary.txt"], re.M)


def test_says_what_is_missing_and_goes_on(machine):
    (machine.tools / "compute-sanitizer").unlink()
    program(machine.tools, "python", 'case $1 in -c) echo "No module named torch"; exit 1 ;; esac')
    done = machine()
    assert done.returncode == 0, done.stdout
    found, files = verdicts(machine.folder)
    skipped = {name for name, verdict in found.items() if verdict == "skipped"}
    assert skipped == {"sanitizer", "python-tests", "soak", "benchmark"}
    assert "compute-sanitizer is not installed" in files["summary.txt"]
    assert "cannot import torch: No module named torch" in files["summary.txt"]


def test_parts_of_several_calls_come_together(machine):
    assert machine("--only", "device,info").returncode == 0
    assert set(verdicts(machine.folder)[0]) == {"device", "info"}
    assert machine("--skip", "device,info,soak").returncode == 0
    found, files = verdicts(machine.folder)
    assert set(found) == set(PARTS.split()) - {"soak"}
    assert re.search(r"^soak +not run", files["summary.txt"], re.M)


def test_dry_run_lists_the_parts_without_a_gpu(machine):
    (machine.tools / "nvidia-smi").unlink()
    done = machine("--dry-run")
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^\[ ?\d+/11\] (\S+)", done.stdout, re.M) == PARTS.split()
    assert not (machine.folder / "found").exists()


def test_refuses_a_machine_without_a_gpu_and_names_that_are_no_part(machine):
    (machine.tools / "nvidia-smi").unlink()
    done = machine()
    assert done.returncode == 2
    assert "no NVIDIA GPU can be used here" in done.stderr
    done = machine("--dry-run", "--only", "soak,fun")
    assert done.returncode == 2
    assert "'fun' is no part; expected some of build" in done.stderr
