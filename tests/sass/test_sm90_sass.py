# SPDX-License-Identifier: BSD-3-Clause
"""The machine code of the Hopper kernel keeps its budgets. Needs a CUDA build, no GPU."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
from budget import kernel_violations, load_budget, loop_violations, violations
from disassembly import Function, Instruction, disassemble
from main_loop import find_main_loops, kernel_name

pytestmark = pytest.mark.sass
pytest_plugins = ["cuda_build"]

BUDGET = load_budget()
LOOPS = [
    (kernel, rule, steps)
    for kernel, limits in BUDGET["kernels"].items()
    for rule, totals in limits["instructions_per_tile"].items()
    for steps in totals
]


@pytest.fixture(scope="session")
def kernels(build) -> dict[str, Function]:
    functions = disassemble(build / "src" / "libopenvc_sm90.a")
    return {name: f for f in functions if (name := kernel_name(f)) is not None}


@pytest.fixture
def need_kernel(kernels, kernel_set) -> Callable[[str], Function]:
    """Gives a kernel by its name; skips the test if this build leaves it out on purpose."""

    def find(name: str) -> Function:
        if name not in kernels and kernel_set != "all":
            pytest.skip(f"OPENVC_KERNEL_SET={kernel_set} leaves {name} out")
        return kernels[name]

    return find


@pytest.fixture
def smallest(kernels) -> Function:
    """A copy to plant regressions in."""
    return copy.deepcopy(min(kernels.values(), key=lambda f: len(f.instructions)))


@pytest.fixture(scope="session")
def loops(kernels):
    """The main loops by kernel, rule and residual k-steps."""
    return {
        (name, loop.rule, str(loop.extra_steps)): loop
        for name, function in kernels.items()
        for loop in find_main_loops(function)
    }


def test_every_kernel_has_a_budget(kernels, kernel_set):
    assert kernels
    if kernel_set == "all":
        assert sorted(kernels) == sorted(BUDGET["kernels"])
    else:
        assert set(kernels) < set(BUDGET["kernels"])


@pytest.mark.parametrize("name", BUDGET["kernels"])
def test_kernel(need_kernel, name):
    assert kernel_violations(need_kernel(name), BUDGET) == []


@pytest.mark.parametrize(("kernel", "rule", "steps"), LOOPS)
def test_main_loop(need_kernel, loops, kernel, rule, steps):
    need_kernel(kernel)
    assert loop_violations(loops[kernel, rule, steps], BUDGET) == []


# Planted regressions: each change of the real code must be noticed.


def first_product(function: Function) -> int:
    """Index of a value product of a main loop."""
    wanted = next(i for i in find_main_loops(function)[0].steady if ".F32." in i.name)
    return next(n for n, i in enumerate(function.instructions) if i is wanted)


def plant(*texts: str) -> Callable[[Function], None]:
    return lambda function: function.insert(first_product(function), *texts)


def remove_product(function: Function) -> None:
    index = first_product(function)
    function.instructions[index] = Instruction("NOP")


def serialise(function: Function) -> None:
    index = first_product(function) + 1
    function.insert(index, "WARPGROUP.DEPBAR.LE gsb0, 0x0", "WARPGROUP.ARRIVE")


def use_more_registers(function: Function) -> None:
    function.registers += 8


def use_stack(function: Function) -> None:
    function.stack_bytes += 16


def ignore_setmaxnreg(function: Function) -> None:
    for index, instruction in enumerate(function.instructions):
        if instruction.opcode == "USETMAXREG":
            function.instructions[index] = Instruction("NOP")


REGRESSIONS = {
    "spill store": (plant("STL [R1+0x8], R4"), "local_accesses_of_an_iteration"),
    "spill load": (plant("LDL R4, [R1+0x8]"), "local_accesses_of_an_iteration"),
    "memory barrier": (plant("MEMBAR.ALL.CTA"), "MEMBAR"),
    "exponential": (plant("MUFU.EX2 R4, R4"), "exponentials (MUFU.EX2)"),
    "logarithm": (plant("MUFU.LG2 R4, R4"), "special functions (MUFU)"),
    "conversion": (plant("F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C R4, R5, R6, RZ"), "conversions"),
    "stage of a ring": (plant("R2UR UR4, R4"), "uniform registers (R2UR)"),
    "call": (plant("CALL.REL.NOINC 0x0"), "calls"),
    "permutations": (plant(*["PRMT R4, R4, 0x6420, R5"] * 8), "PRMT a tile"),
    "maxima": (plant(*["HMNMX2 R4, R4, R5, !PT"] * 8), "max a tile"),
    "any instructions": (plant(*["IADD3 R4, R4, 0x1, RZ"] * 16), "instructions a tile"),
    "lost product": (remove_product, "products P V"),
    "serialised products": (serialise, "WARPGROUP.DEPBAR"),
    "registers": (use_more_registers, "registers instead of"),
    "stack": (use_stack, "stack_bytes"),
    "setmaxnreg": (ignore_setmaxnreg, "no setmaxnreg"),
}


@pytest.mark.parametrize("name", REGRESSIONS)
def test_planted_regression_is_noticed(smallest, name):
    change, message = REGRESSIONS[name]
    change(smallest)
    found = violations(smallest, BUDGET)
    assert any(message in violation for violation in found), found


def test_a_loose_budget_is_noticed(smallest):
    budget = copy.deepcopy(BUDGET)
    totals = budget["kernels"][kernel_name(smallest)]["instructions_per_tile"]["narrow"]
    totals["0"] *= 1.1
    found = violations(smallest, budget)
    assert any("lower it" in violation for violation in found), found


def test_a_missing_loop_is_noticed(smallest):
    budget = copy.deepcopy(BUDGET)
    totals = budget["kernels"][kernel_name(smallest)]["instructions_per_tile"]["narrow"]
    totals["3"] = 190
    assert violations(smallest, budget) == ["no main loop for narrow, 3 extra k-steps"]
