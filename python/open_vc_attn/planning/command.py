# SPDX-License-Identifier: BSD-3-Clause
"""The command ``plan``: arguments, outputs, status. Imports torch only when it runs."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from .. import _command_line
from .._command_line import (
    Parser,
    Progress,
    import_torch,
    positive,
    require_outputs,
    torch_device,
)
from .._numerics import BUDGETS
from .._recipe import require_name

NAME = "plan"
SUMMARY = "Choose numeric options for every layer of a model, from captures"
ROWS = 128

_DESCRIPTION = f"""{SUMMARY}, and write them to a file, a recipe, for
attention(..., recipe=). docs/recipes.md says how they are chosen."""


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog=f"{_command_line.PROGRAM} {NAME}", description=_DESCRIPTION, allow_abbrev=False
    )
    add = parser.add_argument
    add(
        "--input",
        metavar="CAPTURE",
        nargs="+",
        action="extend",
        required=True,
        help="files of open_vc_attn.capture(), or folders of them: all layers, at several noise "
        "levels",
    )
    goal = parser.add_mutually_exclusive_group()
    goal.add_argument(
        "--budget",
        choices=tuple(BUDGETS),
        help="the least error in the time that this budget would take in every layer",
    )
    goal.add_argument(
        "--target-error",
        type=_percent,
        metavar="PERCENT",
        help="the least time for this relative L2 error of all layers' outputs together",
    )
    add(
        "--time-limit",
        type=_factor,
        metavar="FACTOR",
        help="at most this time of attention, 1 being that without extra steps",
    )
    add("--output", metavar="FILE", required=True, help="write the recipe to this file")
    add("--html", metavar="FILE", help="write a page with tables and charts to this file")
    add("--model", metavar="NAME", help="of the model, if the captures do not tell it")
    add(
        "--heads",
        type=positive,
        metavar="N",
        help="heads of a layer, if captures hold some of them and do not tell",
    )
    add(
        "--noise",
        type=_step_and_level,
        metavar="STEP=LEVEL",
        nargs="+",
        action="extend",
        help="noise levels of steps, for captures that tell their step alone; without it they "
        "stand for every noise level together",
    )
    add(
        "--rows",
        type=positive,
        default=ROWS,
        metavar="N",
        help=f"queries of a capture to plan from, and as many to check with (default {ROWS})",
    )
    add("--device", help="a torch device (cuda if there is one, else cpu)")
    return parser


def _number(text: str, least: float, expected: str) -> float:
    value = float(text)
    if not least <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}; expected {expected}")
    return value


def _percent(text: str) -> float:
    value = _number(text, 0, "a number of percent above 0")
    if value == 0:
        raise argparse.ArgumentTypeError(f"{text}; expected a number of percent above 0")
    return value


def _factor(text: str) -> float:
    return _number(text, 1, "1 or more, the time over that without extra steps")


def _step_and_level(text: str) -> tuple[int, float]:
    step, equals, level = text.partition("=")
    if not (equals and step.isascii() and step.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text}; expected STEP=LEVEL such as 10=0.6")
    return int(step), _number(level, 0, "a noise level of 0 or more behind the equals sign")


# argparse names the types by them.
_percent.__name__ = _factor.__name__ = "number"
_step_and_level.__name__ = "STEP=LEVEL"


def run(words: Sequence[str]) -> int:
    """Runs the command with these arguments; returns the exit status."""
    return _command_line.run(_parser(), words, _run)


def _run(arguments: argparse.Namespace) -> int:
    import_torch()
    if arguments.budget is arguments.target_error is arguments.time_limit is None:
        raise ValueError(
            "--budget: not given; expected it, --target-error or --time-limit. Give one of them, "
            "such as --budget balanced."
        )
    if arguments.model is not None:
        require_name("--model", arguments.model)
    from .captures import find

    device = torch_device(arguments.device)
    paths = find(arguments.input)
    require_outputs(
        {"--output": arguments.output, "--html": arguments.html},
        [("--input", path) for path in paths],
    )
    sys.stdout.write(_plan(arguments, paths, device))
    sys.stdout.flush()
    return 0


def _plan(arguments: argparse.Namespace, paths: Sequence[Path], device: object) -> str:
    from .._safetensors import write_atomically
    from .captures import survey
    from .measure import measure
    from .plan import Goal, decide, to_recipe
    from .report import to_table

    goal = Goal(arguments.budget, arguments.target_error, arguments.time_limit)
    with Progress(NAME) as progress:
        progress(f"reading captures: {len(paths)}")
        noise_of_step = _noise_of_step(arguments.noise or ())
        captures = survey(paths, arguments.model, arguments.heads, noise_of_step)
        measurements = measure(captures, arguments.rows, device, progress)
    plan = decide(captures, measurements, goal)
    to_recipe(plan).save(arguments.output)
    if arguments.html:
        from .report_html import to_html

        write_atomically(Path(arguments.html), [to_html(plan).encode()])
    return to_table(plan)


def _noise_of_step(pairs: Sequence[tuple[int, float]]) -> dict[int, float]:
    levels: dict[int, float] = {}
    for step, level in pairs:
        if levels.setdefault(step, level) != level:
            raise ValueError(
                f"--noise: {level:g} for step {step}, which has {levels[step]:g} already; "
                "expected one level for a step. Remove one of them."
            )
    return levels
