# SPDX-License-Identifier: BSD-3-Clause
"""The machine code of the kernel of sm89/ without residual columns, for two GPUs. Compiles it itself,
in seconds: a build of all libraries for one more architecture takes a minute."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest
from control_flow import ControlFlow
from disassembly import Function, disassemble

pytestmark = pytest.mark.sass
pytest_plugins = ["cuda_build"]

REPOSITORY = Path(__file__).parents[2]
SCORES = "QMMA.16832.F16.E4M3.E4M3"
VALUES = "QMMA.16832.F32.E4M3.E4M3"
# Products of eight columns of a warp and tile: four k-steps, 16 and 17 of them each.
SCORES_OF_TILE = 4 * 16
VALUES_OF_TILE = 4 * 17
# Steady instructions of a tile and warp. There are two warps on a scheduler, and 3,200 clocks for
# the products of each.
MOST_INSTRUCTIONS = {"narrow": 640, "wide": 720}


@pytest.fixture(scope="module", params=["sm_89", "sm_120a"])
def kernel(request, build, tmp_path_factory) -> Function:
    cubin = tmp_path_factory.mktemp("sm89") / "dense.cubin"
    folders = (REPOSITORY / "src", REPOSITORY / "include", build / "generated")
    subprocess.run(
        ["nvcc", "-std=c++20", "-O3", f"-arch={request.param}", "-cubin", "-o", cubin]
        + [f"-I{folder}" for folder in folders]
        + [REPOSITORY / "src/cuda/sm89/instantiations/dense.cu"],
        check=True,
    )
    (function,) = disassemble(cubin)
    return function


def test_products_are_those_of_fp8_tensor_cores(kernel):
    names = Counter(i.name for i in kernel.instructions)
    assert {name for name in names if "MMA" in name} == {SCORES, VALUES}


def test_nothing_spills(kernel):
    assert kernel.registers <= 255
    assert kernel.stack_bytes == 0
    assert kernel.local_accesses == 0


def test_main_loops_stay_short(kernel):
    flow = ControlFlow(kernel)
    loops = flow.innermost(lambda instruction: instruction.name == VALUES)
    assert len(loops) == 2
    for loop in loops:
        steady = flow.instructions(flow.spine(loop))
        names = Counter(i.name for i in steady)
        assert (names[SCORES], names[VALUES]) == (SCORES_OF_TILE, VALUES_OF_TILE)
        rule = "wide" if names["HADD2"] > 16 else "narrow"  # the maximum, from every pair of scores
        assert len(steady) <= MOST_INSTRUCTIONS[rule], names
