# SPDX-License-Identifier: BSD-3-Clause
"""What a run measures, in the order of importance, and how a budget of seconds is divided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from contender_names import PLANS, call_name, kernel_name
from inputs import Inputs, channel_outliers, example_captures, gaussian
from measurements import Benchmark, shape_name
from paired_timing import Plan
from results import Results
from summary import ACCURACY, CAPTURED, CAUSAL, REPAIR, SPEED

# Tokens x heads: Wan 2.1 at 720p on 8, 4 and 1 GPUs and more, a power of two, Wan at 480p.
HEADLINE = (73_397, 7)
SHAPES = [HEADLINE, (73_397, 56), (32_768, 16), (32_760, 40), (73_397, 14)]
CAUSAL_SHAPE = (32_768, 16)
LENGTHS = [32_639, 32_640, 32_641, 32_700, 32_760, 32_767, 32_768, 32_769]
SHORT_TOKENS = [512, 1024, 2048, 4096, 8192]
SHORT_HEADS = [8, 24]
PREPARED_SHAPES = [(73_397, 56), (73_397, 7), (32_760, 56), (32_760, 7), (4096, 56), (4096, 7)]
REPAIR_BUDGETS = [0.005, 0.01, 0.02, 0.04]
ROUNDS, QUICK_ROUNDS = 7, 3

# On random numbers the other plans compute what one of these three computes; the captures show all.
PLANS_BESIDE_DEFAULT = ("0 extra steps", "2 extra steps")
FEW_PLANS = frozenset(
    [call_name(plan) for plan in PLANS]
    + [kernel_name(plan) for plan in PLANS if plan not in PLANS_BESIDE_DEFAULT]
)


class Step(NamedTuple):
    name: str
    seconds: float
    """What it takes on an H200 with all contenders."""
    measure: Callable[[float], Any]
    """Gets the seconds that it may take."""


def share_of(step: Step, later: Sequence[Step], remaining: float) -> float:
    """The seconds a step may take so that the later ones keep their shares."""
    return remaining * step.seconds / (step.seconds + sum(other.seconds for other in later))


def run(steps: Sequence[Step], results: Results, after_each: Callable[[], None]) -> None:
    """Runs what is not done yet."""
    todo = [step for step in steps if step.name not in results.steps]
    for index, step in enumerate(todo):

        def measure(step: Step = step, later: Sequence[Step] = todo[index + 1 :]) -> Any:
            return step.measure(share_of(step, later, results.remaining_seconds()))

        results.step(step.name, measure, needs_seconds=step.seconds / 3)
        after_each()


def quick_steps(benchmark: Benchmark) -> list[Step]:
    """Two shapes in one minute, to see that everything runs."""
    plan = Plan(QUICK_ROUNDS, timed_seconds=0.1, lead_in_seconds=0.05)
    return [
        Step("copy", 1, lambda _: benchmark.copy_bandwidth()),
        *(_speed(benchmark, shape, 25, plan) for shape in (HEADLINE, CAUSAL_SHAPE)),
    ]


def all_steps(
    benchmark: Benchmark,
    results: Results,
    captured: Callable[[], Inputs] | None,
    rounds: int = ROUNDS,
) -> list[Step]:
    """`captured` gives recorded inputs at full length, made when first asked for."""
    plan = Plan(rounds, timed_seconds=0.3, lead_in_seconds=0.12)
    shapes = {shape: _speed(benchmark, shape, 38, plan) for shape in SHAPES}
    steps = [Step("copy", 1, lambda _: benchmark.copy_bandwidth())]
    if captured is not None:
        steps += _captured_steps(benchmark, cache(captured), plan)
    steps.append(shapes.pop(HEADLINE))
    for name, make in _accuracy_cases().items():
        steps.append(Step(ACCURACY + name, 1, lambda _, m=make: benchmark.accuracy(m())))
    steps.append(
        Step(
            CAUSAL + shape_name(*CAUSAL_SHAPE),
            28,
            lambda seconds: benchmark.speed(
                gaussian(*CAUSAL_SHAPE).with_causal_mask(), plan, seconds, FEW_PLANS
            ),
        )
    )
    if captured is None:
        steps.append(
            Step(
                REPAIR,
                6,
                lambda _: benchmark.repair(
                    gaussian(*HEADLINE), f"N(0,1) {shape_name(*HEADLINE)}", REPAIR_BUDGETS
                ),
            )
        )
    steps += [shapes.pop((73_397, 56)), shapes.pop((32_768, 16))]
    steps += [
        Step(f"short {heads} heads", 9, lambda _, h=heads: benchmark.short_calls(SHORT_TOKENS, h))
        for heads in SHORT_HEADS
    ]
    steps.append(
        Step(
            "preparation",
            7,
            lambda _: benchmark.preparation(
                PREPARED_SHAPES, results.steps["copy"]["bytes_per_second"]
            ),
        )
    )
    steps.append(Step("lengths", 8, lambda _: benchmark.lengths(LENGTHS, 16)))
    return steps + list(shapes.values())


def captured_inputs(minidit: Path, clips: Path, results: Results) -> Inputs:
    """Makes the captures and leaves in the record where each head comes from."""
    from captured import capture

    made = capture(minidit, clips)
    results.data["captured"] = made.about
    results.save()
    return made.inputs


def _captured_steps(benchmark: Benchmark, inputs: Callable[[], Inputs], plan: Plan) -> list[Step]:
    return [
        Step(SPEED + CAPTURED, 95, lambda seconds: benchmark.speed(inputs(), plan, seconds)),
        Step(
            CAUSAL + CAPTURED,
            32,
            lambda seconds: benchmark.speed(inputs().with_causal_mask(), plan, seconds, FEW_PLANS),
        ),
        Step(REPAIR, 10, lambda _: benchmark.repair(inputs(), CAPTURED, REPAIR_BUDGETS)),
    ]


def _speed(benchmark: Benchmark, shape: tuple[int, int], seconds: float, plan: Plan) -> Step:
    return Step(
        SPEED + shape_name(*shape),
        seconds,
        lambda share: benchmark.speed(gaussian(*shape), plan, share, FEW_PLANS),
    )


def _accuracy_cases() -> dict[str, Callable[[], Inputs]]:
    """Inputs that strain single rules; none of them is timed."""
    cases = example_captures()
    cases["gaussian_v_plus_1_32768"] = partial(gaussian, 32_768, 2, value_offset=1.0)
    cases["gaussian_131072"] = partial(gaussian, 131_072, 2)
    cases["gaussian_v_plus_1_131072"] = partial(gaussian, 131_072, 2, value_offset=1.0)
    cases["channel_outliers_32768"] = partial(channel_outliers, 32_768, 2)
    return cases
