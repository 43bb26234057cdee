#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Instructions and model clocks of the Hopper kernel's main loops, from its machine code.

Usage: sass_report.py [--markdown | --update-budget] <library, object file or cubin>
  --markdown       prints docs/kernels/sm90_sass.md
  --update-budget  writes the measured numbers into sm90_budget.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from budget import BUDGET_FILE, load_budget, measure, violations
from disassembly import Function, disassemble
from main_loop import CLASSES, MainLoop, find_main_loops, kernel_name

COUNTS = [*CLASSES, "other", "total"]
CLOCKS = ["issue", "FMA", "ALU", "tensor"]

INTRODUCTION = """\
# Machine code of the Hopper kernel

Generated from the compiled library; after a change of the kernel:

    .venv/bin/python tests/sass/sass_report.py --markdown build/dev-cuda/src/libopenvc_sm90.a > docs/kernels/sm90_sass.md

`tests/sass/` holds these numbers to the budgets of `tests/sass/sm90_budget.json` in every CI run, without a GPU.

Each row is one way through a main loop: a kernel, a head's rule and its residual k-steps. Counted is the steady state, in which no
stage is late and no reference of a wide head moves.

- **Instructions** per warp and tile of 64 x 128 scores (one loop iteration is two tiles). *max*: binary16 maxima, `HMNMX2` and
  `VHMNMX`. *uniform*: the scalar datapath, here descriptors and barrier addresses. *other*: branches, barriers, votes, moves.
  *moved*: instructions that a tile adds at most when a reference moves, in wide heads.
- **Clocks** per SM and tile of 128 x 128 scores. *issue*: one instruction per clock and scheduler, two warps on each.
  *FMA*, *ALU*: the same instructions at the rates measured on an H200 (128 lanes a clock for `FFMA`, `FMUL`, `FADD`, `HFMA2`, 100
  for `HADD2`, 64 for the rest; `VHMNMX` is taken to run at 64 as `VIMNMX3` does). *tensor*: the products at 8192 FLOP a clock,
  ones rows and residual k-steps included. *share*: the largest of issue, FMA and ALU over tensor; below 100 % the softmax can
  hide behind the products.
"""


def table_rows(loops: list[MainLoop]) -> list[list[str]]:
    rows = []
    for loop in loops:
        counts, clocks = loop.per_tile(), loop.clocks()
        share = max(clocks[name] for name in CLOCKS[:-1]) / clocks["tensor"]
        rows.append(
            [
                loop.rule,
                str(loop.extra_steps),
                *(f"{counts[name]:g}" for name in COUNTS),
                f"{loop.longest_moved_per_tile():g}",
                *(f"{clocks[name]:.0f}" for name in CLOCKS),
                f"{share:.0%}",
            ]
        )
    return rows


HEADINGS = ["rule", "extra k-steps", *COUNTS, "moved", *CLOCKS, "share"]


def resources(function: Function) -> str:
    numbers = measure(function)
    return (
        f"{len(function.instructions):,} instructions, {function.registers} registers, "
        f"{numbers['stack_bytes']} bytes of stack, {numbers['local_accesses']} accesses to local "
        f"memory, in a main loop at most {numbers['local_accesses_of_a_loop']}, in every iteration "
        f"{numbers['local_accesses_of_an_iteration']}"
    )


def print_text(kernels: dict[str, Function]) -> None:
    budget = load_budget()
    for name, function in kernels.items():
        loops = find_main_loops(function)
        rows = [HEADINGS, *table_rows(loops)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        print(f"{name}: {resources(function)}")
        for row in rows:
            cells = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            print("  " + "  ".join(cells))
        found = violations(function, budget) if name in budget["kernels"] else ["no budget"]
        for violation in found:
            print(f"  {violation}")
        print()


def print_markdown(kernels: dict[str, Function]) -> None:
    print(INTRODUCTION, end="")
    for name, function in kernels.items():
        print(f"\n## `{name}`\n\n{resources(function).capitalize()}.\n")
        print("| " + " | ".join(HEADINGS) + " |")
        print("|---|" + "--:|" * (len(HEADINGS) - 1))
        for row in table_rows(find_main_loops(function)):
            print("| " + " | ".join(row) + " |")


def update_budget(kernels: dict[str, Function]) -> None:
    budget = load_budget()
    budget["kernels"] = {name: measure(function) for name, function in kernels.items()}
    BUDGET_FILE.write_text(_json(budget) + "\n")


def _json(value: object, indent: int = 0) -> str:
    """JSON with innermost objects on one line, so that a budget reads as a table."""
    if not isinstance(value, dict) or not any(isinstance(v, dict) for v in value.values()):
        return json.dumps(value)
    margin = " " * (indent + 2)
    items = (f"{margin}{json.dumps(k)}: {_json(v, indent + 2)}" for k, v in value.items())
    return "{\n" + ",\n".join(items) + "\n" + " " * indent + "}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_mutually_exclusive_group()
    actions.add_argument("--markdown", action="store_true", help="print docs/kernels/sm90_sass.md")
    actions.add_argument("--update-budget", action="store_true", help=f"write {BUDGET_FILE.name}")
    parser.add_argument("binary", type=Path, help="library, object file or cubin")
    arguments = parser.parse_args()

    found = {kernel_name(f): f for f in disassemble(arguments.binary)}
    kernels = {name: found[name] for name in sorted(filter(None, found))}
    if not kernels:
        parser.error(f"{arguments.binary} has no attention kernel")
    if arguments.markdown:
        print_markdown(kernels)
    elif arguments.update_budget:
        update_budget(kernels)
    else:
        print_text(kernels)


if __name__ == "__main__":
    main()
