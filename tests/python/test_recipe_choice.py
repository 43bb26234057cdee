# SPDX-License-Identifier: BSD-3-Clause
"""The choice of a candidate for every layer, and what surrounds it: pure numbers."""

import itertools
import math
import random

import pytest

torch = pytest.importorskip("torch")

from open_vc_attn import Numerics  # noqa: E402
from open_vc_attn._numerics import BUDGETS  # noqa: E402
from open_vc_attn.planning import choose, measure, plan  # noqa: E402
from open_vc_attn.planning.captures import Captures, Place  # noqa: E402
from open_vc_attn.planning.choose import Candidate, Item  # noqa: E402

COST = choose.EXTRA_STEP_COST


def item(*errors, steps=(0, 1, 2, 4), work=1.0):
    return Item(work, [Candidate(*pair) for pair in zip(errors, steps, strict=True)])


def random_items(seed, count=4):
    """Errors that mostly fall with the steps."""
    numbers = random.Random(seed)
    items = []
    for _ in range(count):
        errors = sorted((10 ** numbers.uniform(-2, 2) for _ in range(4)), reverse=True)
        if numbers.random() < 0.3:
            numbers.shuffle(errors)
        items.append(item(*errors, work=numbers.choice([1.0, 1.0, 3.0])))
    return items


def every_choice(items):
    return itertools.product(*(range(len(x.candidates)) for x in items))


def within(value, limit):
    return value <= limit * (1 + 1e-6)


@pytest.mark.parametrize("limit, expected", [(1, [0, 0]), (1 + COST / 2, [1, 0]), (1.6, [3, 0])])
def test_a_layer_where_steps_pay_gets_them(limit, expected):
    """The second one has another error, which steps do not touch."""
    assert choose.least_error([item(100, 10, 5, 2), item(50, 49.9, 49.9, 49.9)], limit) == expected


def test_absolute_errors_count():
    """The same relative gain is worth more where the output is large; a short layer costs less."""
    small, large = item(1, 0.1, 0.1, 0.1), item(100, 10, 10, 10)
    assert choose.least_error([small, large], 1 + COST / 2) == [0, 1]
    short = item(1, 0.1, 0.1, 0.1, work=0.001)
    assert choose.least_error([short, item(100, 99, 98, 97)], 1 + COST / 4) == [1, 0]


@pytest.mark.parametrize("count", [2, 3, 7])
def test_ties_go_to_the_first(count):
    items = [item(10, 1, 1, 1)] * count
    for bought in range(count + 1):
        limit = 1 + COST * bought / count
        assert choose.least_error(items, limit) == [1] * bought + [0] * (count - bought)
    equal = [item(1, 1, 1, 1, steps=(2, 0, 0, 4))] * count
    assert choose.least_error(equal, 2) == [1] * count
    assert choose.least_time(equal, count) == [1] * count


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("limit", [1, 1.05, 1.125, 1.3, 2])
def test_least_error_for_a_time(seed, limit):
    items = random_items(seed)
    picks = choose.least_error(items, limit)
    assert picks == choose.least_error(items, limit)
    assert within(choose.time_factor(items, picks), limit)
    found = choose.squared_error(items, picks)
    allowed = [p for p in every_choice(items) if within(choose.time_factor(items, p), limit)]
    best = min(choose.squared_error(items, p) for p in allowed)
    assert best <= found * (1 + 1e-9)
    for candidate in range(4):
        uniform = [candidate] * len(items)
        if within(choose.time_factor(items, uniform), limit):
            assert (1 - choose.LEAST_GAIN) * found <= choose.squared_error(items, uniform)
    if limit == 2:  # enough for everything
        assert found <= best / (1 - choose.LEAST_GAIN)


def test_the_greedy_choice_is_near_the_best_one():
    ratios = []
    for seed in range(100):
        items = random_items(seed)
        found = choose.squared_error(items, choose.least_error(items, 1.125))
        allowed = [p for p in every_choice(items) if within(choose.time_factor(items, p), 1.125)]
        ratios.append(found / min(choose.squared_error(items, p) for p in allowed))
    assert sorted(ratios)[80] < 1.1 and math.fsum(ratios) / 100 < 1.5


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("share", [1, 0.5, 0.1, 0.01])
def test_least_time_for_an_error(seed, share):
    items = random_items(seed)
    start = choose.squared_error(items, [0] * len(items))
    target = share * start
    picks = choose.least_time(items, target)
    reachable = [p for p in every_choice(items) if within(choose.squared_error(items, p), target)]
    assert (picks is None) == (not reachable)
    if picks is None:
        return
    assert within(choose.squared_error(items, picks), target)
    times = [choose.time_factor(items, p) for p in reachable]
    assert choose.time_factor(items, picks) - 1 <= 2.5 * (min(times) - 1) + 1e-9
    for index, pick in enumerate(picks):  # nothing can be given back
        for cheaper in range(4):
            if (
                items[index].candidates[cheaper].extra_steps
                < items[index].candidates[pick].extra_steps
            ):
                other = [*picks[:index], cheaper, *picks[index + 1 :]]
                assert not choose.squared_error(items, other) <= target


def test_gains_that_nobody_can_measure_are_not_bought():
    assert choose.least_error([item(100, 99, 98.5, 98.2)], 2) == [0]
    assert choose.least_error([item(100, 99, 97.9, 97)], 2) == [2]  # together they can be


def test_a_target_may_need_such_gains():
    items = [item(100, 99, 98.5, 98.2), item(10, 1, 1, 1)]
    assert choose.least_time(items, 98.8) is None
    assert choose.least_time(items, 99.3) == [3, 1]


def test_rounding_does_not_sell_what_was_bought():
    """5.94 - 3.06 is a little more than 8.82 - 5.94 in binary64."""
    assert 5.94 - 3.06 > 8.82 - 5.94
    items = [item(8.82, 5.94, 3.06, steps=(0, 1, 2)), item(1, 1, 1, steps=(0, 1, 2))]
    assert choose.least_error(items, 1 + COST) == [2, 0]


def test_time_is_what_a_gain_is_divided_by():
    """Three short layers remove more than a long one in the same time."""
    items = [*[item(10, 0, 0, 0)] * 3, item(12, 0, 0, 0, work=3)]
    assert choose.least_error(items, 1 + COST / 2) == [1, 1, 1, 0]


def test_no_time_at_all():
    assert choose.least_error([item(1, 0.5, steps=(1, 2))], 1.1) is None


def test_time_of_heads_that_differ():
    items = [item(1, 1, 1, 1), item(1, 1, 1, 1, work=3)]
    assert choose.time_factor(items, [0, 0]) == 1
    assert choose.time_factor(items, [3, 0]) == 1 + 4 * COST / 4
    assert choose.time_factor(items, [0, 1]) == 1 + 3 * COST / 4


@pytest.mark.parametrize(
    "levels, expected",
    [
        ([None], [(0, math.inf)]),
        ([0.9], [(0, 1.8)]),
        ([0.0], [(0, math.inf)]),
        ([0.25, 0.75], [(0, 0.5), (0.5, 1.5)]),
        ([0.0, 0.5, 1.0], [(0, 0.25), (0.25, 0.75), (0.75, 2)]),
        ([100, 500, 900], [(0, 300), (300, 700), (700, 1800)]),
    ],
)
def test_noise_levels_that_are_nearest(levels, expected):
    places = [Place(layer, level) for layer in (0, 5) for level in levels]
    assert plan.noise_ranges(places) == 2 * expected


def test_layers_with_noise_levels_of_their_own():
    places = [Place(0, 0.5), Place(1, None), Place(2, 0.25), Place(2, 0.75)]
    assert plan.noise_ranges(places) == [(0, 1), (0, math.inf), (0, 0.5), (0.5, 1.5)]


@pytest.mark.parametrize("queries", [1, 2, 3, 17, 255, 256, 257, 1000, 75_600])
@pytest.mark.parametrize("count", [1, 16, 128])
def test_sampled_queries(queries, count):
    planned, others = measure.sampled_rows(queries, count)
    rows = sorted(planned + others)
    assert rows[0] >= 0 and rows[-1] < queries and planned and others
    if queries > 1:
        assert len(set(rows)) == len(rows) == min(queries, 2 * count)
    if queries >= 2 * count > 32:  # from everywhere, and not in step with the columns of an image
        assert max(b - a for a, b in itertools.pairwise(rows)) <= 2 * -(-queries // len(rows))


@pytest.mark.parametrize("width", [40, 64, 80])
def test_sampled_queries_are_not_one_column_of_an_image(width):
    planned, others = measure.sampled_rows(256 * width, 128)
    assert len({row % width for row in planned + others}) > width / 2


@pytest.mark.parametrize(
    "new, expected",
    [
        ([0.5] * 8, True),
        ([0.9] * 8, True),
        ([0.96] * 8, False),  # too little
        ([1.0] * 8, False),
        ([1.5] * 8, False),
        ([0.1, 1.2, 0.4, 1.5, 0.3, 1.4, 1.0, 0.9], False),  # may be chance
        ([0.1, 0.4, 0.6, 0.2, 0.5, 0.8, 0.7, 0.3], True),
    ],
)
def test_options_that_help(new, expected):
    assert measure.is_better(new, [1.0] * 8) is expected


def test_one_query_decides_nothing():
    assert not measure.is_better([0.0], [1.0])


def measurement(errors, steps=(0, 1, 1, 2, 2, 1, 4), budget_steps=(0.5, 1, 2)):
    """A layer with these squared errors, in percent of its output's square."""
    measured = [measure.Measured(e, e, n, [e]) for e, n in zip(errors, steps, strict=True)]
    budgets = [measure.Measured(1, 1, n, [1]) for n in budget_steps]
    return measure.Measurement(
        Place(0, None),
        work=1.0,
        planned_energy=100.0,
        held_out_energy=100.0,
        options={},
        candidates=[Numerics()] * len(measured),
        measured=measured,
        budgets=dict(zip(BUDGETS, budgets, strict=True)),
    )


def decided(*goal):
    """Every step pays."""
    errors = [measurement([64, 32, 32, 16, 16, 32, 4]), measurement([63, 31, 31, 15, 15, 31, 3])]
    found = plan.decide(Captures("tiny", 2, 128, {}), errors, plan.Goal(*goal))
    return found.totals


@pytest.mark.parametrize("budget, steps", [("fast", 0.5), ("balanced", 1), ("best", 2)])
def test_a_budget_is_spent_and_not_exceeded(budget, steps):
    assert decided(budget).time_factor == pytest.approx(1 + COST * steps)
    assert decided(budget, None, 1.0).time_factor == 1
    assert decided(budget, None, 9.0) == decided(budget)


@pytest.mark.parametrize("target, steps", [(80, 0), (57, 1), (20, 4)])
def test_a_target_within_a_limit(target, steps):
    found = decided(None, target, 1 + COST * steps)
    assert found.error_percent <= target and found.time_factor == pytest.approx(1 + COST * steps)
    if steps:
        with pytest.raises(ValueError, match=f"--target-error: {target} %; expected"):
            decided(None, target, 1 + COST * (steps - 0.5))


def test_steps_are_candidates_once():
    found = [tuple(steps.items()) for steps in measure.STEPS.values()]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("error, energy, expected", [(0, 4, 0), (1, 4, 50), (0, 0, 0), (4, 1, 200)])
def test_percent(error, energy, expected):
    assert plan.percent(error, energy) == expected
