# SPDX-License-Identifier: BSD-3-Clause
"""The choice of one candidate for every layer and noise level: least error for a time, or least
time for an error. Pure numbers; equal numbers give equal choices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

EXTRA_STEP_COST = 0.125
"""Time of a k-step over that of a head without any; kExtraStepCost of the library."""
LEAST_GAIN = 0.02
"""Share of a squared error. Less cannot be told from some hundred sampled queries, and is not
bought."""
_SLACK = 1e-9  # sums of binary64 numbers in another order


class Candidate(NamedTuple):
    """What a choice of numeric options does to a layer at a noise level."""

    squared_error: float
    """Of its whole output."""
    extra_steps: float
    """Mean over the heads."""


class Item(NamedTuple):
    """A layer at a noise level."""

    work: float
    """Time without extra steps, in any unit."""
    candidates: Sequence[Candidate]
    """The same choices in the same order as those of the other items."""


class _Purchase(NamedTuple):
    """The next better candidate of an item."""

    value: float
    """Squared error that it removes, for each unit of time."""
    item: int
    candidate: int


def time_factor(items: Sequence[Item], picks: Sequence[int]) -> float:
    """Time of all items over that without any extra step."""
    steps = sum(
        item.work * item.candidates[pick].extra_steps
        for item, pick in zip(items, picks, strict=True)
    )
    return 1 + EXTRA_STEP_COST * steps / sum(item.work for item in items)


def squared_error(items: Sequence[Item], picks: Sequence[int]) -> float:
    return sum(item.candidates[pick].squared_error for item, pick in zip(items, picks, strict=True))


def least_error(items: Sequence[Item], limit: float) -> list[int] | None:
    """Indices of the candidates with little error whose time_factor() is at most `limit`.

    Not worse than one candidate for all items. None if even the fastest take longer.
    """
    picks = [_fastest(item) for item in items]
    if not _within(time_factor(items, picks), limit):
        return None
    for purchase in _purchases(items):
        tried = picks.copy()
        tried[purchase.item] = purchase.candidate
        if _within(time_factor(items, tried), limit):
            picks = tried  # else what follows in this item costs still more
    for candidate in range(len(items[0].candidates)):
        tried = [candidate] * len(items)
        if _within(time_factor(items, tried), limit) and _is_better(
            squared_error(items, tried), squared_error(items, picks)
        ):
            picks = tried
    return picks


def least_time(items: Sequence[Item], target: float) -> list[int] | None:
    """Indices of fast candidates whose squared errors add up to `target` or less; None if none
    do."""
    picks = [_fastest(item) for item in items]
    for purchase in _purchases(items):
        if _within(squared_error(items, picks), target):
            break
        picks[purchase.item] = purchase.candidate
    if not _within(squared_error(items, picks), target):
        picks = _most_accurate(items)
        if not _within(squared_error(items, picks), target):
            return None
    return _without_waste(items, picks, target)


def _without_waste(items: Sequence[Item], picks: list[int], target: float) -> list[int]:
    """The last purchase may have made others needless."""
    for index, item in enumerate(items):
        cheaper = [
            i for i in range(len(item.candidates)) if _cost(item, i) < _cost(item, picks[index])
        ]
        for candidate in sorted(cheaper, key=lambda i, c=item.candidates: (*c[i][::-1], i)):
            tried = [*picks[:index], candidate, *picks[index + 1 :]]
            if _within(squared_error(items, tried), target):
                picks = tried
                break
    return picks


def _most_accurate(items: Sequence[Item]) -> list[int]:
    return [
        min(range(len(item.candidates)), key=lambda i, c=item.candidates: (c[i], i))
        for item in items
    ]


def _fastest(item: Item) -> int:
    """Of equally fast ones the one with the least error, of equal ones the first."""
    return min(range(len(item.candidates)), key=lambda i: (*item.candidates[i][::-1], i))


def _purchases(items: Sequence[Item]) -> list[_Purchase]:
    """All worth their time, the best first; those of an item in rising order of their cost."""
    found: list[_Purchase] = []
    for index, item in enumerate(items):
        found += _purchases_of(index, item)
    # Stable: equal ones in the order of the items.
    return sorted(found, key=lambda purchase: -purchase.value)


def _purchases_of(index: int, item: Item) -> list[_Purchase]:
    """The lower convex hull of error over time from the fastest candidate on."""
    found: list[_Purchase] = []
    here = _fastest(item)
    while True:
        best, best_value = None, 0.0
        ceiling = found[-1].value if found else math.inf
        for i in range(len(item.candidates)):
            cost = _cost(item, i) - _cost(item, here)
            gain = item.candidates[here].squared_error - item.candidates[i].squared_error
            if cost <= 0 or gain <= LEAST_GAIN * item.candidates[here].squared_error:
                continue
            if gain / cost > best_value:
                best_value = gain / cost
                # Rounding must not put it before the purchase that it follows.
                best = _Purchase(min(ceiling, gain / cost), index, i)
        if best is None:
            return found
        found.append(best)
        here = best.candidate


def _cost(item: Item, candidate: int) -> float:
    return item.work * item.candidates[candidate].extra_steps


def _within(value: float, limit: float) -> bool:
    return value <= limit * (1 + _SLACK)


def _is_better(new: float, old: float) -> bool:
    return new < (1 - LEAST_GAIN) * old
