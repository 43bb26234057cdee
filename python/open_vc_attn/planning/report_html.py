# SPDX-License-Identifier: BSD-3-Clause
"""A plan as a page that needs nothing beside it, in the look of the page of ``quality``."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .. import _openvc
from .._numerics import BUDGETS
from ..quality import charts
from ..quality.report_html import card, page, section
from .measure import Measured
from .plan import Plan, percent
from .report import EXPLANATION, HEADINGS, TOTAL_HEADINGS, rows, total_rows

_WIDE = 1064.0
"""Width of a wide card's content."""


def to_html(plan: Plan) -> str:
    captures = plan.captures
    title = f"Recipe for {captures.model}"
    lead = (
        f"{len({m.place.layer for m in plan.measurements})} layers of {captures.heads} heads, "
        f"{sum(map(len, captures.sources.values()))} captures. {EXPLANATION}"
    )
    body = [
        '<p class="eyebrow">Open-VC Attention: recipe</p>',
        f'<h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p>',
        section("Beside the budgets", _table(TOTAL_HEADINGS, total_rows(plan))),
        section("Layers", f'<div class="grid">{_charts(plan)}</div>'),
        section("Choices", _table(HEADINGS, rows(plan))),
        f"<footer>open-vc-attn {escape(_openvc.version)}</footer>\n",
    ]
    return page(title, body)


def _charts(plan: Plan) -> str:
    ticks = [
        f"{m.place.layer}" if m.place.noise is None else f"{m.place.layer}, {m.place.noise:g}"
        for m in plan.measurements
    ]
    errors = [
        charts.Series(
            name,
            [
                percent(found.planned, m.planned_energy)
                for m, found in zip(plan.measurements, column, strict=True)
            ],
        )
        for name, column in _columns(plan)
    ]
    errors.append(
        charts.Series(
            "outcome of this recipe",
            [
                percent(found.held_out, m.held_out_energy)
                for m, found in zip(plan.measurements, plan.chosen, strict=True)
            ],
        )
    )
    steps = [
        charts.Series(name, [found.extra_steps for found in column])
        for name, column in _columns(plan)
    ]
    axis = "layer, noise level"
    return card(
        "Error of each layer",
        charts.legend([series.name for series in errors])
        + charts.lines(errors, ticks, axis, "relative L2, %", _WIDE),
        "Relative to the layer's own output. A plan weighs absolute errors.",
        wide=True,
    ) + card(
        "Extra steps",
        charts.legend([series.name for series in steps])
        + charts.lines(steps, ticks, axis, "mean over the heads", _WIDE),
        "Each takes 12.5 % of the matrix products of its head.",
        wide=True,
    )


def _columns(plan: Plan) -> list[tuple[str, Sequence[Measured]]]:
    budgets = [(f"budget {name}", [m.budgets[name] for m in plan.measurements]) for name in BUDGETS]
    return [("this recipe", plan.chosen), *budgets]


def _table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines
    )
    return (
        f'<div class="card scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>\n"
    )
