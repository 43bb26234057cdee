# SPDX-License-Identifier: BSD-3-Clause
"""Holds measured machine code to the budgets of sm90_budget.json.

No main loop may touch local memory but those of the kernels under "may_spill_in_loops", whose
budgets are what they do today.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from disassembly import Function, Instruction
from main_loop import (
    CONVERSIONS,
    SCORE_STEPS,
    TILES_PER_ITERATION,
    VALUE_STEPS,
    MainLoop,
    find_main_loops,
    kernel_name,
)

BUDGET_FILE = Path(__file__).with_name("sm90_budget.json")
LOCAL_ACCESSES = ("LDL", "STL")

# Weights of the tile, one for each row of a thread; factors of the accumulator, likewise.
EXPONENTIALS_PER_TILE = 2
RESCALE_EXPONENTIALS_PER_TILE = 2
# wgmma.fence before, commit after each of the two products of a tile; one wait for both.
FENCES_PER_TILE = 2
GROUPS_PER_TILE = 2
WAITS_PER_TILE = 1


def load_budget() -> dict:
    return json.loads(BUDGET_FILE.read_text())


def count(instructions: Iterable[Instruction], *opcodes: str) -> int:
    return sum(i.opcode in opcodes for i in instructions)


def measure(function: Function) -> dict:
    """The numbers that a budget of a kernel states."""
    loops = find_main_loops(function)
    totals: dict[str, dict[str, float]] = {}
    for loop in loops:
        totals.setdefault(loop.rule, {})[str(loop.extra_steps)] = loop.per_tile()["total"]
    return {
        "stack_bytes": function.stack_bytes,
        "local_accesses": function.local_accesses,
        "local_accesses_of_a_loop": max([0, *(count(x.whole, *LOCAL_ACCESSES) for x in loops)]),
        "local_accesses_of_an_iteration": max(
            [0, *(count(x.steady, *LOCAL_ACCESSES) for x in loops)]
        ),
        "instructions_per_tile": totals,
    }


def kernel_violations(function: Function, budget: dict) -> list[str]:
    """What is wrong with a kernel as a whole."""
    name = kernel_name(function)
    limits = budget["kernels"][name]
    found = []
    if function.registers != budget["registers"]:
        found.append(f"{function.registers} registers instead of {budget['registers']}")
    measured = measure(function)
    clean = name not in budget["may_spill_in_loops"]
    for resource, value in measured.items():
        if resource == "instructions_per_tile":
            continue
        limit = 0 if clean and "_of_a" in resource else limits[resource]
        if value > limit:
            found.append(f"{resource}: {value}, the budget is {limit}")
    loops = {(rule, steps) for rule, x in measured["instructions_per_tile"].items() for steps in x}
    expected = {(rule, steps) for rule, x in limits["instructions_per_tile"].items() for steps in x}
    found += [f"no main loop for {rule}, {steps} extra k-steps" for rule, steps in expected - loops]
    found += [f"no budget for {rule}, {steps} extra k-steps" for rule, steps in loops - expected]
    changes = [i.text for i in function.instructions if i.opcode == "USETMAXREG"]
    for change, registers in budget["setmaxnreg"].items():
        if not any(change in text and text.endswith(f"{registers:#x}") for text in changes):
            found.append(f"no setmaxnreg to {registers} registers ({change})")
    return found


def loop_violations(loop: MainLoop, budget: dict) -> list[str]:
    """What is wrong with one main loop."""
    return [
        *_rare_violations(loop),
        *_product_violations(loop),
        *_count_violations(loop, budget),
    ]


def violations(function: Function, budget: dict) -> list[str]:
    """All that is wrong with a kernel and its main loops."""
    found = kernel_violations(function, budget)
    for loop in find_main_loops(function):
        found += [f"{loop.name}: {violation}" for violation in loop_violations(loop, budget)]
    return found


def _rare_violations(loop: MainLoop) -> list[str]:
    """Instructions that have no place in an iteration, or only in its rare paths."""
    found = []
    if n := count(loop.whole, "MEMBAR"):
        found.append(f"{n} memory barriers (MEMBAR)")
    exponentials = sum(i.name == "MUFU.EX2" for i in loop.steady)
    if exponentials != EXPONENTIALS_PER_TILE * TILES_PER_ITERATION:
        found.append(f"{exponentials} exponentials (MUFU.EX2) in every iteration")
    if n := count(loop.steady, "MUFU") - exponentials:
        found.append(f"{n} other special functions (MUFU) in every iteration")
    if n := count(loop.steady, *CONVERSIONS):
        found.append(f"{n} conversions ({', '.join(CONVERSIONS)}) in every iteration")
    # Stages of the rings that the compiler does not know to be the same in all threads.
    if n := count(loop.steady, "R2UR"):
        found.append(f"{n} moves to uniform registers (R2UR) in every iteration")
    if n := count(loop.steady, "CALL"):
        found.append(f"{n} calls in every iteration")
    exponentials = sum(i.name == "MUFU.EX2" for i in loop.rescale)
    wanted = 0 if loop.rule == "narrow" else RESCALE_EXPONENTIALS_PER_TILE * TILES_PER_ITERATION
    if exponentials != wanted:
        found.append(f"{exponentials} exponentials (MUFU.EX2) where references move")
    return found


def _product_violations(loop: MainLoop) -> list[str]:
    """All products unrolled, and none waiting for another.

    Where the compiler serialises wgmma it puts a fence before, and a wait after, each product.
    """
    steady = loop.steady
    groups = sum(i.opcode == "QGMMA" and "gsb0" in i.text for i in steady)
    waits = sum(i.name.startswith("WARPGROUP.DEPBAR") for i in loop.whole)
    fences = sum(i.name.startswith("WARPGROUP.ARRIVE") for i in loop.whole)
    wanted = {
        "products Q K^T": (loop.score_products(), SCORE_STEPS + loop.extra_steps),
        "products P V": (loop.value_products(), VALUE_STEPS),
        "committed groups": (groups, GROUPS_PER_TILE),
        "fences (WARPGROUP.ARRIVE)": (fences, FENCES_PER_TILE),
        "waits (WARPGROUP.DEPBAR)": (waits, WAITS_PER_TILE),
    }
    return [
        f"{found} {name} an iteration instead of {per_tile * TILES_PER_ITERATION}"
        for name, (found, per_tile) in wanted.items()
        if found != per_tile * TILES_PER_ITERATION
    ]


def _count_violations(loop: MainLoop, budget: dict) -> list[str]:
    measured = loop.per_tile()
    slack = budget["slack"]
    found = [
        f"{measured[name]:g} {name} a tile, the budget is {limit}"
        for name, limit in budget["classes_per_tile"][loop.rule].items()
        if measured[name] > limit + slack["instructions_of_a_class"]
    ]
    totals = budget["kernels"][loop.kernel]["instructions_per_tile"]
    total = totals.get(loop.rule, {}).get(str(loop.extra_steps))
    if total is None:  # a violation of the kernel
        return found
    if measured["total"] > total * (1 + slack["share_of_total"]):
        found.append(f"{measured['total']:g} instructions a tile, the budget is {total:g}")
    if measured["total"] < total * (1 - slack["share_of_total"]):
        found.append(
            f"{measured['total']:g} instructions a tile, well below the budget of {total:g}: lower "
            "it with 'sass_report.py --update-budget'"
        )
    return found
