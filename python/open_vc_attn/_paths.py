# SPDX-License-Identifier: BSD-3-Clause
"""Where the compiled parts of the package lie."""

from pathlib import Path

from . import _openvc

# In an editable installation not the folder of this file.
_FOLDER = Path(_openvc.__file__).parent

PROGRAM = _FOLDER / "bin" / "open-vc-attn"


def include_dir() -> str:
    """The folder of the C and C++ headers: ``#include <openvc/attention.hpp>``."""
    return str(_FOLDER / "include")


def cmake_dir() -> str:
    """The folder of the CMake package ``openvc``, for ``cmake -Dopenvc_DIR=...``.

    After ``find_package(openvc)`` a project links ``openvc::openvc``, the library that this package
    uses itself.
    """
    return str(_FOLDER / "lib" / "cmake" / "openvc")
