# SPDX-License-Identifier: BSD-3-Clause
"""The tests of diffusers on the oldest version that is supported, which tools/setup.sh installs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from open_vc_attn.integrations.diffusers import FRAMEWORK

# What differs between versions: the dispatcher, the pipeline's steps, what a compiler sees.
CHOSEN = "disable_restores or hunyuan- or whole or noise_levels or before or by_its_name or named"
TESTS = Path(__file__).resolve().parent
FOLDER = Path(sys.prefix) / "diffusers-oldest"


@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"{FOLDER} is not there")
def test_oldest_version():
    path = os.pathsep.join(filter(None, [str(FOLDER), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    (folder,) = FOLDER.glob("diffusers-*.dist-info")
    assert folder.name.startswith(f"diffusers-{FRAMEWORK.oldest}.")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    command += ["-k", CHOSEN]
    result = subprocess.run(
        [*command, str(TESTS / "test_diffusers.py")],
        env=environment,
        cwd=TESTS.parents[1],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stdout[-4000:]
