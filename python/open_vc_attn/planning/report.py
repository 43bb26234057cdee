# SPDX-License-Identifier: BSD-3-Clause
"""A plan as a table of text."""

from __future__ import annotations

from collections.abc import Sequence

from .._numerics import BUDGETS
from .plan import Plan, Totals, in_words, percent

HEADINGS = ("layer", "noise", "extra steps", "planned, %", "outcome, %", "numerics")
TOTAL_HEADINGS = ("all layers", "time", "planned, %", "outcome, %")
EXPLANATION = (
    "extra steps: mean over the heads. planned, outcome: relative L2 error of the layer's output, "
    "on the queries that the plan is made from and on others. time: over that without extra steps."
)


def rows(plan: Plan) -> list[tuple[str, ...]]:
    """A row under HEADINGS for each layer and noise level."""
    found = []
    for measurement, pick, chosen in zip(plan.measurements, plan.picks, plan.chosen, strict=True):
        noise = measurement.place.noise
        found.append(
            (
                str(measurement.place.layer),
                "all" if noise is None else f"{noise:g}",
                f"{chosen.extra_steps:.2f}",
                f"{percent(chosen.planned, measurement.planned_energy):.3f}",
                f"{percent(chosen.held_out, measurement.held_out_energy):.3f}",
                in_words(measurement, pick),
            )
        )
    return found


def total_rows(plan: Plan) -> list[tuple[str, ...]]:
    """A row under TOTAL_HEADINGS for the plan and for each budget in every layer."""
    named = [("this recipe", plan.totals)]
    named += [(f"budget {name} everywhere", plan.of_budget(name)) for name in BUDGETS]
    return [(name, *_cells(total)) for name, total in named]


def _cells(total: Totals) -> tuple[str, ...]:
    return (
        f"{total.time_factor:.3f}",
        f"{total.error_percent:.3f}",
        f"{total.held_out_percent:.3f}",
    )


def to_table(plan: Plan) -> str:
    return (
        f"{EXPLANATION}\n\n{_table([HEADINGS, *rows(plan)], {HEADINGS[-1]})}\n"
        f"{_table([TOTAL_HEADINGS, *total_rows(plan)], {TOTAL_HEADINGS[0]})}"
    )


def _table(lines: Sequence[Sequence[str]], words: set[str]) -> str:
    """Columns of numbers to the right, those of `words` to the left."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    left = [heading in words for heading in lines[0]]
    text = ""
    for line in lines:
        cells = (
            cell.ljust(width) if is_left else cell.rjust(width)
            for cell, width, is_left in zip(line, widths, left, strict=True)
        )
        text += "  ".join(cells).rstrip() + "\n"
    return text
