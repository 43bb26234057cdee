# SPDX-License-Identifier: BSD-3-Clause
"""Budgets of the Blackwell kernel's machine code, and what is wrong with a kernel by them.

A main loop is that of the softmax warps, one for each rule of a head: an iteration is a key block of
the 32 rows of a warp. The loop of the thread that issues the products is a third one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from budget import LOCAL_ACCESSES, count
from control_flow import ControlFlow
from disassembly import Function, Instruction
from main_loop import CONVERSIONS

REGISTERS = 168
SETMAXNREG = {"DEALLOC": 40, "TRY_ALLOC": 232}
SLACK = 0.03  # of the instructions of a key block


@dataclass(frozen=True)
class Budget:
    """A kernel on an architecture."""

    narrow: int  # instructions of a key block and warp
    wide: int
    # To local memory: of the kernel, and in every key block where products are issued. The 40
    # registers of that warp are too few for what ptxas makes of it for sm_103a.
    local_accesses: int = 0
    issuer_accesses: int = 0


BUDGETS = {
    "sm_100a": {
        "Dense": Budget(narrow=266, wide=393),
        "DenseTwoSteps": Budget(narrow=266, wide=393),
        "DenseFourSteps": Budget(narrow=266, wide=393),
        "CausalFourSteps": Budget(narrow=276, wide=391),
    },
    "sm_103a": {
        "Dense": Budget(narrow=297, wide=405, local_accesses=113, issuer_accesses=38),
        "DenseTwoSteps": Budget(narrow=297, wide=405, local_accesses=121, issuer_accesses=38),
        "DenseFourSteps": Budget(narrow=297, wide=405, local_accesses=121, issuer_accesses=40),
        "CausalFourSteps": Budget(narrow=300, wide=408, local_accesses=121, issuer_accesses=40),
    },
}

# Of a key block. Loads: 136 columns of sums, then 128 of scores; stores: two halves of the codes.
TENSOR_MEMORY = {
    "LDTM.x32": 3,
    "LDTM.x16": 1,
    "LDTM.x8": 3,
    "LDTM.x64.PACK16BIT": 1,
    "STTM.x16": 2,
}
# The weight of a block; in wide heads the factor of the accumulator when the reference moves.
EXPONENTIALS = {"narrow": 1, "wide": 2}
# Packed differences of the wide rule are 32 a block; the narrow rule has next to none.
_WIDE_DIFFERENCES = 16

# Of a key block and both query tiles: P V with codes from tensor memory, in two parts of four
# k-steps; Q K^T with both operands from shared memory, four k-steps. Residual columns come on top.
VALUE_PRODUCTS = 2 * 2 * 4
SCORE_PRODUCTS = 4
QUERY_TILES = 2
# tcgen05.commit of every key block: two parts of the sums of each tile, the stage of V.
COMMITS = 2 * 2 + 1


def is_value_product(instruction: Instruction) -> bool:
    return "UTCQMMA tmem[" in instruction.text


def is_score_product(instruction: Instruction) -> bool:
    return "UTCQMMA gdesc[" in instruction.text


@dataclass
class SoftmaxLoop:
    rule: str  # narrow, wide
    steady: list[Instruction]  # when nothing is late and no reference moves
    whole: list[Instruction]


def softmax_loops(flow: ControlFlow) -> list[SoftmaxLoop]:
    found = []
    for loop in flow.innermost(lambda i: i.opcode == "STTM"):
        steady = flow.instructions(flow.spine(loop))
        for region in flow.regions(loop):
            # One lane arrives at a barrier; the whole warp walks past it.
            if any(i.name.startswith("SYNCS.ARRIVE") for i in flow.instructions(region)):
                steady += flow.instructions(flow.passages(region)[-1])
        rule = "wide" if count(steady, "HADD2") > _WIDE_DIFFERENCES else "narrow"
        found.append(SoftmaxLoop(rule, steady, flow.instructions(sorted(loop.blocks))))
    return sorted(found, key=lambda x: x.rule)


def violations(function: Function, budget: Budget) -> list[str]:
    """All that is wrong with a kernel."""
    found = _kernel_violations(function, budget)
    flow = ControlFlow(function)
    loops = softmax_loops(flow)
    if [x.rule for x in loops] != ["narrow", "wide"]:
        return [*found, f"main loops {[x.rule for x in loops]} instead of a narrow and a wide one"]
    for loop in loops:
        limit = getattr(budget, loop.rule)
        found += [f"{loop.rule}: {x}" for x in _softmax_violations(loop, limit)]
    return found + _product_violations(function, flow, budget)


def _kernel_violations(function: Function, budget: Budget) -> list[str]:
    found = []
    if function.registers != REGISTERS:
        found.append(f"{function.registers} registers instead of {REGISTERS}")
    if function.local_accesses > budget.local_accesses:
        found.append(
            f"{function.local_accesses} accesses to local memory, the budget is "
            f"{budget.local_accesses}"
        )
    changes = [i.text for i in function.instructions if i.opcode == "USETMAXREG"]
    for change, registers in SETMAXNREG.items():
        if not any(change in text and text.endswith(f"{registers:#x}") for text in changes):
            found.append(f"no setmaxnreg to {registers} registers ({change})")
    return found


def _softmax_violations(loop: SoftmaxLoop, limit: int) -> list[str]:
    found = []
    if n := count(loop.whole, *LOCAL_ACCESSES):
        found.append(f"{n} accesses to local memory in the main loop")
    if n := count(loop.whole, *CONVERSIONS):
        found.append(f"{n} conversions ({', '.join(CONVERSIONS)})")
    if n := count(loop.steady, "CALL"):
        found.append(f"{n} calls in every key block")
    exponentials = sum(i.name == "MUFU.EX2" for i in loop.whole)
    if exponentials != EXPONENTIALS[loop.rule]:
        found.append(f"{exponentials} exponentials (MUFU.EX2) instead of {EXPONENTIALS[loop.rule]}")
    if n := count(loop.whole, "MUFU") - exponentials:
        found.append(f"{n} other special functions (MUFU)")
    transfers = Counter(i.name for i in loop.whole if i.opcode in ("LDTM", "STTM"))
    if transfers != TENSOR_MEMORY:
        found.append(f"transfers of tensor memory {dict(transfers)} instead of {TENSOR_MEMORY}")
    total = len(loop.steady)
    if total > limit * (1 + SLACK):
        found.append(f"{total} instructions a key block, the budget is {limit}")
    if total < limit * (1 - SLACK):
        found.append(
            f"{total} instructions a key block, well below the budget of {limit}: lower it"
        )
    return found


def _product_violations(function: Function, flow: ControlFlow, budget: Budget) -> list[str]:
    """Products are issued unrolled, in two forms, and committed where the protocol says so."""
    others = {i.name for i in function.instructions if "MMA" in i.opcode} - {"UTCQMMA"}
    found = [f"products that are not FP8 of one block: {sorted(others)}"] if others else []
    loops = flow.innermost(is_value_product)
    if len(loops) != 1:
        return [*found, f"{len(loops)} loops with products P V instead of 1"]
    (loop,) = loops
    steady = flow.instructions(flow.spine(loop))
    if (n := count(steady, *LOCAL_ACCESSES)) > budget.issuer_accesses:
        found.append(
            f"{n} accesses to local memory where products are issued, the budget is "
            f"{budget.issuer_accesses}"
        )
    values = sum(map(is_value_product, steady))
    if values != VALUE_PRODUCTS:
        found.append(f"{values} products P V a key block instead of {VALUE_PRODUCTS}")
    commits = count(steady, "UTCBAR")
    if commits != COMMITS:
        found.append(f"{commits} commits (UTCBAR) in every key block instead of {COMMITS}")
    # In the last block there are no next scores; the products of a tile end with a commit.
    blocks = [flow.blocks[b].instructions for b in sorted(loop.blocks)]
    scores = [sum(map(is_score_product, x)) for x in blocks if count(x, "UTCBAR")]
    if (scores := [n for n in scores if n]) != [SCORE_PRODUCTS] * QUERY_TILES:
        found.append(
            f"{scores} products Q K^T before a commit instead of {SCORE_PRODUCTS} for each of "
            f"{QUERY_TILES} query tiles"
        )
    return found
