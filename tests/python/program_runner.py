# SPDX-License-Identifier: BSD-3-Clause
"""Running the program open-vc-attn from the outside, for the tests of it."""

import os
import subprocess
from pathlib import Path

import pytest

from open_vc_attn import cli


def find_program():
    """The packaged program, else that of the build that OPENVC_BUILD_DIR names."""
    built = Path(os.environ.get("OPENVC_BUILD_DIR", "")) / "bin" / "open-vc-attn"
    for path in (cli._PROGRAM, built):
        if path.is_file():
            return path
    pytest.skip("no program was built")


def run(*arguments, program=None, **options):
    return subprocess.run(
        [program or find_program(), *(a if isinstance(a, bytes) else str(a) for a in arguments)],
        capture_output=True,
        timeout=300,
        check=False,
        **{"text": True, "errors": "replace", **options},
    )


def output_of(*arguments):
    result = run(*arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def complaint_of(status, *arguments):
    """What the program says on standard error, and nothing on standard output."""
    result = run(*arguments)
    assert result.returncode == status, result.stderr
    assert result.stdout == ""
    assert result.stderr.startswith("open-vc-attn: ")
    assert "terminate" not in result.stderr and "what()" not in result.stderr
    return result.stderr
