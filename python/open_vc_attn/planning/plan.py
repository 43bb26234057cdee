# SPDX-License-Identifier: BSD-3-Clause
"""From measurements to a recipe."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import _openvc
from .._numerics import BUDGETS
from .._recipe import Recipe, RecipePart
from . import choose
from .captures import Captures, Place
from .measure import STEPS, Measured, Measurement

LAST_RANGE = 2.0
"""The range of the largest noise level that was measured ends at this multiple of it."""


class Goal(NamedTuple):
    """What a plan is for: at least one of them, budget or target."""

    budget: str | None = None
    target_percent: float | None = None
    time_limit: float | None = None
    """Time over that without any extra step."""


class Totals(NamedTuple):
    """Of all layers and noise levels together."""

    time_factor: float
    error_percent: float
    held_out_percent: float


@dataclass(frozen=True)
class Plan:
    captures: Captures
    measurements: Sequence[Measurement]
    picks: Sequence[int]
    """Candidate of each measurement."""
    goal: Goal

    @property
    def chosen(self) -> list[Measured]:
        return [m.measured[pick] for m, pick in zip(self.measurements, self.picks, strict=True)]

    @property
    def totals(self) -> Totals:
        return totals(self.measurements, self.chosen)

    def of_budget(self, name: str) -> Totals:
        """The same with this budget in every layer."""
        return totals(self.measurements, [m.budgets[name] for m in self.measurements])


def totals(measurements: Sequence[Measurement], measured: Sequence[Measured]) -> Totals:
    work = math.fsum(m.work for m in measurements)
    pairs = list(zip(measurements, measured, strict=True))
    steps = math.fsum(m.work * x.extra_steps for m, x in pairs) / work
    return Totals(
        1 + choose.EXTRA_STEP_COST * steps,
        percent(
            math.fsum(x.planned for x in measured),
            math.fsum(m.planned_energy for m in measurements),
        ),
        percent(
            math.fsum(x.held_out for x in measured),
            math.fsum(m.held_out_energy for m in measurements),
        ),
    )


def percent(squared_error: float, energy: float) -> float:
    """Relative L2 error. An output that is zero has none."""
    return 100 * math.sqrt(squared_error / energy) if energy > 0 else 0.0


def decide(captures: Captures, measurements: Sequence[Measurement], goal: Goal) -> Plan:
    """The plan for a goal.

    Raises:
        ValueError: no candidates reach the goal.
    """
    items = [
        choose.Item(m.work, [choose.Candidate(x.planned, x.extra_steps) for x in m.measured])
        for m in measurements
    ]
    limit = math.inf if goal.time_limit is None else goal.time_limit
    if goal.target_percent is None:
        if goal.budget is not None:
            of_budget = totals(measurements, [m.budgets[goal.budget] for m in measurements])
            limit = min(limit, of_budget.time_factor)
        picks = choose.least_error(items, limit)
        assert picks is not None  # there is a candidate without steps, and limits begin at 1
        return Plan(captures, measurements, picks, goal)
    energy = math.fsum(m.planned_energy for m in measurements)
    picks = choose.least_time(items, energy * (goal.target_percent / 100) ** 2)
    if picks is None or choose.time_factor(items, picks) > limit:
        best = choose.least_error(items, limit)
        assert best is not None
        reached = Plan(captures, measurements, best, goal).totals
        allowed = "" if goal.time_limit is None else f" within --time-limit {goal.time_limit:g}"
        raise ValueError(
            f"--target-error: {goal.target_percent:g} %; expected {reached.error_percent:.3g} % or "
            f"more, the least that was reached{allowed}. Raise it."
        )
    return Plan(captures, measurements, picks, goal)


def to_recipe(plan: Plan) -> Recipe:
    """The recipe of a plan."""
    layers: dict[int, list[RecipePart]] = {}
    ranges = noise_ranges([m.place for m in plan.measurements])
    for measurement, pick, (low, high) in zip(plan.measurements, plan.picks, ranges, strict=True):
        found = measurement.measured[pick]
        part = RecipePart(
            measurement.candidates[pick],
            low,
            high,
            extra_steps=_round(found.extra_steps),
            error_percent=_round(percent(found.planned, measurement.planned_energy)),
            held_out_percent=_round(percent(found.held_out, measurement.held_out_energy)),
        )
        layers.setdefault(measurement.place.layer, []).append(part)
    captures = plan.captures
    return Recipe(captures.model, captures.heads, captures.head_dim, layers, about(plan))


def noise_ranges(places: Sequence[Place]) -> list[tuple[float, float]]:
    """The noise levels for which each place stands: those that are nearest to it in its layer.

    They begin at 0; beyond twice the largest level that was measured nothing is said.
    """
    found = []
    for _, group in itertools.groupby(places, key=lambda place: place.layer):
        levels = [place.noise for place in group]
        if levels == [None]:
            found.append((0.0, math.inf))
            continue
        known = [level for level in levels if level is not None]
        middles = [(a + b) / 2 for a, b in itertools.pairwise(known)]
        # A level of 0 alone has no multiple.
        end = LAST_RANGE * known[-1] or math.inf
        found += list(itertools.pairwise([0.0, *middles, end]))
    return found


def about(plan: Plan) -> dict[str, Any]:
    """What the file says about itself."""
    goal = {
        name: value
        for name, value in zip(
            ("budget", "target_error_percent", "time_limit"), plan.goal, strict=True
        )
        if value is not None
    }
    names = {"this recipe": plan.totals, **{name: plan.of_budget(name) for name in BUDGETS}}
    return {
        "version": _openvc.version,
        "goal": goal,
        "captures": sum(len(sources) for sources in plan.captures.sources.values()),
        "time_and_errors": {
            name: {key: _round(value) for key, value in total._asdict().items()}
            for name, total in names.items()
        },
    }


def in_words(measurement: Measurement, pick: int) -> str:
    """A candidate as it is called in tables."""
    words = [list(STEPS)[pick]]
    words += [f"{name} {value}" for name, value in measurement.options.items()]
    return ", ".join(words)


def _round(value: float) -> float:
    return round(value, 4)
