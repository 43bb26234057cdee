# SPDX-License-Identifier: BSD-3-Clause
"""Plants forbidden includes in a temporary tree: check_layering.py must find each of them."""

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import check_layering

HEADERS = (
    "include/openvc/status.hpp",
    "include/openvc/attention.hpp",
    "src/numerics/e4m3.hpp",
    "src/schedule/traversal.hpp",
    "src/io/safetensors.hpp",
    "src/cpu/attention.hpp",
    "src/cuda/ptx/wgmma.cuh",
    "src/cuda/prepare/prepare.hpp",
    "src/cuda/check/find_non_finite.hpp",
    "src/cuda/sm90/launch.hpp",
    "src/cuda/sm90/mainloop.cuh",
    "src/cuda/sm100/launch.hpp",
    "src/study/study.hpp",
)

FORBIDDEN = (
    ("src/numerics/a.hpp", '"schedule/traversal.hpp"'),  # upward
    ("src/numerics/b.hpp", "<cuda_fp8.h>"),
    ("src/numerics/c.hpp", '"openvc/status.hpp"'),
    ("src/schedule/a.hpp", '"cpu/attention.hpp"'),
    ("src/io/a.cpp", '"numerics/e4m3.hpp"'),  # sideways
    ("src/io/b.cpp", "<fmt/format.h>"),
    ("src/cpu/a.cpp", '"openvc/attention.hpp"'),  # not vocabulary
    ("src/cpu/b.cpp", '"../api/backend.hpp"'),  # would not exist, but is not hidden by that
    ("src/cpu/c.cpp", "<cuda_runtime.h>"),
    ("src/cuda/sm90/a.cu", '"cuda/sm100/launch.hpp"'),  # siblings
    ("src/cuda/sm100/a.cu", '"../sm90/mainloop.cuh"'),
    ("src/cuda/check/a.cu", '"cuda/prepare/prepare.hpp"'),
    ("src/cuda/check/b.cu", '"openvc/attention.hpp"'),
    ("src/cuda/ptx/a.cuh", '"numerics/e4m3.hpp"'),
    ("src/api/a.cpp", '"cuda/sm90/mainloop.cuh"'),  # only launch.hpp is plain C++
    ("src/study/a.cpp", '"cuda/sm90/launch.hpp"'),
    ("include/openvc/a.hpp", '"cpu/attention.hpp"'),
    ("include/openvc/b.hpp", "<cute/tensor.hpp>"),
    ("cli/a.cpp", '"cpu/attention.hpp"'),
    ("python/bindings/a.cpp", '"study/study.hpp"'),
    ("python/bindings/b.cpp", "<torch/extension.h>"),
    ("src/misc/a.cpp", "<vector>"),  # a folder that is no layer
)

ALLOWED = (
    ("src/numerics/a.hpp", '"numerics/e4m3.hpp"'),
    ("src/schedule/a.hpp", '"openvc/status.hpp"'),
    ("src/io/a.cpp", "<sys/mman.h>"),
    ("src/cpu/a.cpp", '"hwy/highway.h"'),
    ("src/cpu/b.cpp", '"schedule/traversal.hpp"'),
    ("src/cuda/sm90/a.cu", '"mainloop.cuh"'),
    ("src/cuda/sm90/b.cu", '"cuda/ptx/wgmma.cuh"'),
    ("src/api/a.cpp", '"cuda/sm90/launch.hpp"'),
    ("src/api/b.cpp", '"cuda/check/find_non_finite.hpp"'),
    ("src/study/a.cpp", '"cpu/attention.hpp"'),
    ("cli/a.cpp", '"study/study.hpp"'),
    ("cli/b.cpp", "<openvc/version.hpp>"),  # generated: known by its name
    ("python/bindings/a.cpp", '"openvc/attention.hpp"'),
)


def check(path: str, include: str) -> tuple[int, str]:
    """Exit status and output of the check on a tree with one planted include."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in HEADERS:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text("#pragma once\n")
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"// first line\n#include {include}\n")
        with contextlib.redirect_stdout(io.StringIO()) as output:
            return check_layering.main([folder]), output.getvalue()


class PlantedViolations(unittest.TestCase):
    def test_each_forbidden_include_is_named(self) -> None:
        for path, include in FORBIDDEN:
            with self.subTest(path=path, include=include):
                status, output = check(path, include)
                self.assertEqual(status, 1, output)
                self.assertIn(f"{path}:", output)

    def test_allowed_includes_pass(self) -> None:
        for path, include in ALLOWED:
            with self.subTest(path=path, include=include):
                status, output = check(path, include)
                self.assertEqual(status, 0, output)


if __name__ == "__main__":
    unittest.main()
