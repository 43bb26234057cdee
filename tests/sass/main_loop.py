# SPDX-License-Identifier: BSD-3-Clause
"""Finds the main loops of the Hopper attention kernel in its machine code and measures them.

One iteration of a main loop handles two tiles of 64 query rows x 128 keys per warpgroup. Between
the instructions that every iteration executes lie decisions, told apart by what they contain:

  wait      a stage is not full yet: the barrier is asked again           (SYNCS.PHASECHK)
  release   one lane gives stages back; the whole warp walks past it      (SYNCS.ARRIVE)
  rescale   a reference of a wide head moved: the accumulator is scaled   (many FMUL)
  mask      the causal mask crosses the tile                              (all else)

Steady are the instructions of an iteration in which no stage is late and no reference moves.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from control_flow import ControlFlow, Loop
from disassembly import Function, Instruction, demangle

TILES_PER_ITERATION = 2
SCORE_STEPS = 4  # k-steps of Q K^T without residual columns
VALUE_STEPS = 4  # k-steps of P V

# A warp holds 32 packed pairs of scores per thread and tile; a rule that takes one more
# instruction per pair shows as that many of its kind, the others as a handful.
PAIRS_PER_TILE = 32
_RULE_THRESHOLD = PAIRS_PER_TILE // 2
# Registers of the accumulator that a moved reference scales: 64 of values, 2 of sums.
_RESCALE_THRESHOLD = 64

# Columns of the report. 'other' is what is left, 'total' everything that takes an issue slot.
CLASSES = {
    "QGMMA": ("QGMMA",),
    "HFMA2": ("HFMA2",),
    "HADD2": ("HADD2",),
    "max": ("HMNMX2", "VHMNMX"),
    "PRMT": ("PRMT",),
    "FFMA": ("FFMA",),
    "uniform": (),  # the scalar datapath: every opcode that begins with U
}
CONVERSIONS = ("F2F", "F2FP", "F2I", "F2IP", "I2F", "I2FP", "I2I", "I2IP", "FRND")

# Model. Two consumer warpgroups put two warps on each of the four schedulers of an SM.
WARPS_PER_SCHEDULER = 2
TENSOR_CLOCKS = 1056  # Q K^T of 128 x 128 scores, P V with its ones rows, at 8192 FLOP/clock
TENSOR_CLOCKS_PER_STEP = 128  # one residual k-step
# Clocks between two warp instructions of a kind on one scheduler: 32 lanes over a quarter of the
# lanes per clock and SM, as measured on an H200. Kinds that are not listed run at 64 lanes.
_FULL_RATE = ("FFMA", "FADD", "FMUL", "HFMA2")
_FMA_CLOCKS = {**dict.fromkeys(_FULL_RATE, 1.0), "HADD2": 1.28, "IMAD": 2.0}
_ALU_CLOCKS = 2.0
# Neither FMA nor ALU: they only take an issue slot here.
_ELSEWHERE = ("QGMMA", "WARPGROUP", "SYNCS", "BRA", "BSSY", "BSYNC", "SHFL", "VOTE", "LDL", "STL",
              "BAR", "R2UR", "LDC", "MUFU")  # fmt: skip


def _is_value_product(instruction: Instruction) -> bool:
    return instruction.opcode == "QGMMA" and ".F32." in instruction.name


def _is_score_product(instruction: Instruction) -> bool:
    return instruction.opcode == "QGMMA" and ".F16." in instruction.name


def _has(instructions: Iterable[Instruction], *names: str) -> bool:
    return any(i.name.startswith(names) for i in instructions)


def _kind(instructions: list[Instruction]) -> str:
    if sum(i.opcode == "FMUL" for i in instructions) >= _RESCALE_THRESHOLD:
        return "rescale"
    if _has(instructions, "SYNCS.ARRIVE"):
        return "release"
    if _has(instructions, "SYNCS.PHASECHK"):
        return "wait"
    return "mask"


@dataclass
class MainLoop:
    """One way through a main loop: a rule, a number of residual k-steps."""

    kernel: str
    rule: str  # narrow, wide
    extra_steps: int
    steady: list[Instruction]
    rescale: list[Instruction]  # all arms of the two rescale branches
    longest_rescale: int  # instructions of an iteration in which references move at both tiles
    whole: list[Instruction]  # with every rare path

    @property
    def name(self) -> str:
        return f"{self.kernel}, {self.rule}, {self.extra_steps} extra k-steps"

    def per_tile(self) -> dict[str, float]:
        """Steady instructions by class, per warp and tile."""
        counts = Counter(i.opcode for i in self.steady)
        classes = {name: sum(counts[o] for o in opcodes) for name, opcodes in CLASSES.items()}
        classes["uniform"] = sum(n for o, n in counts.items() if o.startswith("U"))
        classes["other"] = len(self.steady) - sum(classes.values())
        classes["total"] = len(self.steady)
        return {name: count / TILES_PER_ITERATION for name, count in classes.items()}

    def clocks(self) -> dict[str, float]:
        """Model clocks of an SM for a block's tile of 128 x 128 scores, by what limits."""
        counts = Counter(i.opcode for i in self.steady)
        fma = sum(_FMA_CLOCKS[o] * n for o, n in counts.items() if o in _FMA_CLOCKS)
        alu = sum(
            _ALU_CLOCKS * n
            for o, n in counts.items()
            if o not in _FMA_CLOCKS and o not in _ELSEWHERE and not o.startswith("U")
        )
        share = WARPS_PER_SCHEDULER / TILES_PER_ITERATION
        return {
            "issue": len(self.steady) * share,
            "FMA": fma * share,
            "ALU": alu * share,
            "tensor": TENSOR_CLOCKS + self.extra_steps * TENSOR_CLOCKS_PER_STEP,
        }

    def longest_moved_per_tile(self) -> float:
        """Instructions that moving references add at most."""
        return self.longest_rescale / TILES_PER_ITERATION

    def score_products(self) -> int:
        return sum(map(_is_score_product, self.steady))

    def value_products(self) -> int:
        return sum(map(_is_value_product, self.steady))


def kernel_name(function: Function) -> str | None:
    """The configuration of an attention kernel, for example 'DenseFourSteps'; None for others."""
    found = re.search(r"attention_kernel<(?:\w+::)*(\w+)>\(", demangle(function.symbol))
    return found.group(1) if found else None


def find_main_loops(function: Function) -> list[MainLoop]:
    """The loops around value products."""
    flow = ControlFlow(function)
    kernel = kernel_name(function) or function.symbol
    found = [_measure(flow, loop, kernel) for loop in flow.innermost(_is_value_product)]
    return sorted(found, key=lambda x: (x.extra_steps, x.rule))


def _measure(flow: ControlFlow, loop: Loop, kernel: str) -> MainLoop:
    steady = flow.instructions(flow.spine(loop))
    rescale: list[Instruction] = []
    longest_rescale = 0
    for region in flow.regions(loop):
        instructions = flow.instructions(sorted(region))
        kind = _kind(instructions)
        longest = flow.instructions(flow.passages(region)[-1])
        if kind == "release":
            steady += longest
        elif kind == "rescale":
            rescale += instructions
            longest_rescale += len(longest)
    score_products = sum(map(_is_score_product, steady))
    return MainLoop(
        kernel=kernel,
        rule=_rule(steady),
        extra_steps=score_products // TILES_PER_ITERATION - SCORE_STEPS,
        steady=steady,
        rescale=rescale,
        longest_rescale=longest_rescale,
        whole=flow.instructions(sorted(loop.blocks)),
    )


def _rule(steady: list[Instruction]) -> str:
    differences = sum(i.opcode == "HADD2" for i in steady)
    return "wide" if differences / TILES_PER_ITERATION > _RULE_THRESHOLD else "narrow"
