# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of machine code share: a plugin of theirs. No conftest.py, whose name is taken by the
one that tests/python imports from."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def build() -> Path:
    """The folder of the CUDA build whose machine code is looked at."""
    folder = os.environ.get("OPENVC_BUILD_DIR")
    if folder is None:
        pytest.skip("OPENVC_BUILD_DIR names no build folder")
    return Path(folder)


@pytest.fixture(scope="session")
def option(build) -> Callable[[str], str]:
    """The value of a CMake option of the build, by its name."""
    cache = (build / "CMakeCache.txt").read_text()
    return lambda name: re.search(rf"^{name}:\w+=(.*)$", cache, re.M)[1]


@pytest.fixture(scope="session")
def kernel_set(option) -> str:
    """Which kernels are compiled: all, or the subset ci."""
    return option("OPENVC_KERNEL_SET")
