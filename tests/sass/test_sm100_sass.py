# SPDX-License-Identifier: BSD-3-Clause
"""The machine code of the Blackwell kernel keeps its budgets. Needs a CUDA build, no GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from control_flow import ControlFlow
from disassembly import Function, Instruction, disassemble
from main_loop import kernel_name
from sm100_budget import (
    BUDGETS,
    Budget,
    is_score_product,
    is_value_product,
    softmax_loops,
    violations,
)

pytestmark = pytest.mark.sass
pytest_plugins = ["cuda_build"]

Kernels = dict[str, Function]


@pytest.fixture(scope="session")
def architectures(option) -> list[str]:
    """Those of the budgets that the build is for."""
    compiled = option("OPENVC_CUDA_ARCHITECTURES").split(";")
    return [a for a in BUDGETS if a.removeprefix("sm_") in compiled]


@pytest.fixture(scope="session")
def kernels_of(build) -> Callable[[str], Kernels]:
    """The kernels of an architecture, by name."""
    found: dict[str, Kernels] = {}

    def of(architecture: str) -> Kernels:
        if architecture not in found:
            functions = disassemble(build / "src" / "libopenvc_sm100.a", architecture)
            found[architecture] = {str(kernel_name(f)): f for f in functions}
        return found[architecture]

    return of


@pytest.mark.parametrize("architecture", BUDGETS)
def test_kernels(architectures, kernels_of, kernel_set, architecture):
    if architecture not in architectures:
        pytest.skip(f"this build is not for {architecture}")
    kernels = kernels_of(architecture)
    budgets = BUDGETS[architecture]
    assert kernels
    assert set(kernels) <= set(budgets)
    assert kernel_set != "all" or set(kernels) == set(budgets)
    found = {name: violations(f, budgets[name]) for name, f in kernels.items()}
    assert not any(found.values()), found


# Planted regressions: each change of the real code must be noticed.


@dataclass
class Sample:
    """A kernel to plant regressions in."""

    function: Function
    budget: Budget
    behind_codes: dict[str, int]  # index of an instruction in the main loop of a rule

    def violations(self) -> list[str]:
        return violations(self.function, self.budget)


@pytest.fixture(scope="session")
def smallest(architectures, kernels_of) -> Sample:
    if not architectures:
        pytest.skip("this build is not for a Blackwell architecture")
    architecture = architectures[0]
    name, function = min(kernels_of(architecture).items(), key=lambda x: len(x[1].instructions))
    behind_codes = {}
    for loop in softmax_loops(ControlFlow(function)):
        store = next(i for i in loop.steady if i.opcode == "STTM")
        behind_codes[loop.rule] = find(function, lambda i, store=store: i is store) + 1
    return Sample(function, BUDGETS[architecture][name], behind_codes)


@pytest.fixture
def sample(smallest) -> Sample:
    function = smallest.function
    copied = replace(
        function, instructions=list(function.instructions), labels=dict(function.labels)
    )
    return replace(smallest, function=copied)


Change = Callable[[Sample], None]


def find(function: Function, wanted: Callable[[Instruction], bool]) -> int:
    return next(n for n, i in enumerate(function.instructions) if wanted(i))


def in_softmax(*texts: str, rule: str = "narrow") -> Change:
    """Puts instructions into every key block of a main loop."""
    return lambda sample: sample.function.insert(sample.behind_codes[rule], *texts)


def in_products(*texts: str) -> Change:
    """Puts instructions between products of every key block."""
    return lambda sample: sample.function.insert(
        find(sample.function, is_value_product) + 1, *texts
    )


def turn(wanted: Callable[[Instruction], bool], text: str) -> Change:
    """Makes the last such instruction another one."""

    def change(sample: Sample) -> None:
        instructions = sample.function.instructions
        index = max(n for n, i in enumerate(instructions) if wanted(i))
        instructions[index] = Instruction(text)

    return change


def use_more_registers(sample: Sample) -> None:
    sample.function.registers += 8


SPILL = "STL [R1+0x8], R4"
CODES = "F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C R4, R5, R6, RZ"
SLOTS = ["IADD3 R4, R4, 0x1, RZ"] * 14
REGRESSIONS = {
    "registers": (use_more_registers, "registers instead of"),
    "setmaxnreg": (turn(lambda i: i.opcode == "USETMAXREG", "NOP"), "no setmaxnreg"),
    "spill elsewhere": (
        lambda x: x.function.insert(0, SPILL),
        "accesses to local memory, the budget",
    ),
    "spill, narrow": (in_softmax(SPILL), "narrow: 1 accesses to local memory"),
    "spill, wide": (in_softmax("LDL R4, [R1+0x8]", rule="wide"), "wide: 1 accesses to local"),
    "spill beside products": (in_products(*[SPILL] * 3), "local memory where products are issued"),
    "conversion, narrow": (in_softmax(CODES), "narrow: 1 conversions"),
    "conversion, wide": (in_softmax(CODES, rule="wide"), "wide: 1 conversions"),
    "exponential, narrow": (in_softmax("MUFU.EX2 R4, R4"), "narrow: 2 exponentials"),
    "exponential, wide": (in_softmax("MUFU.EX2 R4, R4", rule="wide"), "wide: 3 exponentials"),
    "reciprocal": (in_softmax("MUFU.RCP R4, R4"), "other special functions"),
    "call": (in_softmax("CALL.REL.NOINC `(.L_x_1)"), "calls in every key block"),
    "load of sums": (in_softmax("LDTM.x8 R4, tmem[UR4]"), "transfers of tensor memory"),
    "store of codes": (in_softmax("STTM.x16 tmem[UR4], R4"), "transfers of tensor memory"),
    "instructions, narrow": (in_softmax(*SLOTS), "instructions a key block, the"),
    "instructions, wide": (in_softmax(*SLOTS, rule="wide"), "instructions a key block, the"),
    "products in BF16": (
        turn(is_value_product, "UTCHMMA tmem[UR8], gdesc[UR4], tmem[UR9], tmem[UR10], idesc[UR11]"),
        "products that are not FP8",
    ),
    "products of two blocks": (
        turn(is_score_product, "UTCQMMA.2CTA gdesc[UR8], gdesc[UR4], tmem[UR9], tmem[UR10]"),
        "products that are not FP8",
    ),
    "lost product P V": (turn(is_value_product, "NOP"), "15 products P V"),
    "codes from shared memory": (
        turn(is_value_product, "UTCQMMA gdesc[UR8], gdesc[UR4], tmem[UR9], tmem[UR10]"),
        "15 products P V",
    ),
    "lost product Q K^T": (turn(is_score_product, "NOP"), "products Q K^T before a commit"),
    "commit": (in_products("UTCBAR [UR8], URZ"), "commits (UTCBAR)"),
}


@pytest.mark.parametrize("name", REGRESSIONS)
def test_planted_regression_is_noticed(sample, name):
    change, message = REGRESSIONS[name]
    change(sample)
    found = sample.violations()
    assert any(message in violation for violation in found), found


def test_a_loose_budget_is_noticed(sample):
    sample.budget = replace(sample.budget, narrow=round(sample.budget.narrow * 1.1))
    found = sample.violations()
    assert any("lower it" in violation for violation in found), found


def test_a_missing_loop_of_products_is_noticed(sample):
    instructions = sample.function.instructions
    for index, instruction in enumerate(instructions):
        if is_value_product(instruction):
            instructions[index] = Instruction("NOP")
    assert "0 loops with products P V instead of 1" in sample.violations()


def test_a_missing_loop_is_noticed(sample):
    # Without its differences the wide loop reads as a second narrow one.
    instructions = sample.function.instructions
    for index, instruction in enumerate(instructions):
        if instruction.opcode == "HADD2":
            instructions[index] = Instruction("NOP")
    found = sample.violations()
    assert any("instead of a narrow and a wide one" in violation for violation in found), found
