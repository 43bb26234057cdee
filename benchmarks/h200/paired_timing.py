# SPDX-License-Identifier: BSD-3-Clause
"""Times of several ways to do the same, in shuffled rounds: drift hits all of them alike."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from gpu_monitor import GpuMonitor

MIN_INTERVAL_MS = 1.0  # between two events, so that recording them costs nothing
QUANTILES = {"p10_ms": 0.1, "p50_ms": 0.5, "p90_ms": 0.9}

Launch = Callable[[], Any]
"""Enqueues the work on the current stream."""


@dataclass(frozen=True)
class Plan:
    """How long each contender runs in each round."""

    rounds: int
    timed_seconds: float
    lead_in_seconds: float
    """Untimed launches before: the clock follows the power limit with a delay."""


@dataclass
class Timing:
    """What was seen of one contender."""

    launches: list[float] = field(default_factory=list)  # ms
    round_medians: list[float] = field(default_factory=list)  # ms
    periods: list[tuple[float, float]] = field(default_factory=list)
    joules: float = 0.0
    measured_launches: int = 0

    def describe(self, monitor: GpuMonitor, flops: float) -> dict[str, Any]:
        ordered = sorted(self.launches)
        result: dict[str, Any] = {
            name: round(quantile(ordered, share), 5) for name, share in QUANTILES.items()
        }
        result["tflops"] = round(flops / result["p50_ms"] * 1e-9, 1)
        result["launches"] = len(self.launches)
        result["round_medians_ms"] = [round(value, 5) for value in self.round_medians]
        if self.joules > 0 and self.measured_launches:
            result["joules_per_launch"] = round(self.joules / self.measured_launches, 4)
        return result | monitor.describe(self.periods)


def quantile(ordered: list[float], share: float) -> float:
    """Linear between the two nearest of the sorted values."""
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def median(values: list[float]) -> float:
    return quantile(sorted(values), 0.5)


def estimate_ms(launch: Launch, context: AbstractContextManager[Any] | None = None) -> float:
    """Time of one launch, after one that may compile, allocate and load modules."""
    with context or nullcontext():
        launch()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        launch()
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e3


def warm_up(launch: Launch, milliseconds: float, seconds: float) -> None:
    """Keeps the GPU busy until its clock has settled."""
    for _ in range(max(1, math.ceil(seconds * 1e3 / milliseconds))):
        launch()
    torch.cuda.synchronize()


def paired_rounds(
    launches: Mapping[str, Launch],
    estimates: Mapping[str, float],
    plan: Plan,
    monitor: GpuMonitor,
    *,
    contexts: Mapping[str, Callable[[], AbstractContextManager[Any]]] | None = None,
    seed: int = 0,
) -> dict[str, Timing]:
    """Runs every contender once in each round, in an order that is new in each round."""
    timings = {name: Timing() for name in launches}
    order = list(launches)
    shuffle = random.Random(seed).shuffle
    for _ in range(plan.rounds):
        shuffle(order)
        for name in order:
            context = contexts[name]() if contexts and name in contexts else nullcontext()
            with context:
                _time_block(launches[name], estimates[name], plan, monitor, timings[name])
    return timings


def round_seconds(estimates: Mapping[str, float], plan: Plan) -> float:
    """Expected length of one round."""
    return sum(
        sum(max(seconds, ms * 1e-3) for seconds in (plan.lead_in_seconds, plan.timed_seconds))
        for ms in estimates.values()
    )


def median_ratio(numerator: Timing, denominator: Timing) -> float:
    """Median over the rounds of the ratio of two times."""
    pairs = zip(numerator.round_medians, denominator.round_medians, strict=True)
    return median([a / b for a, b in pairs])


def _time_block(
    launch: Launch, milliseconds: float, plan: Plan, monitor: GpuMonitor, timing: Timing
) -> None:
    group = max(1, math.ceil(MIN_INTERVAL_MS / milliseconds))
    intervals = max(1, math.ceil(plan.timed_seconds * 1e3 / (milliseconds * group)))
    lead_in = max(1, math.ceil(plan.lead_in_seconds * 1e3 / milliseconds))
    events = [torch.cuda.Event(enable_timing=True) for _ in range(intervals + 1)]
    energy = monitor.energy_joules()
    for _ in range(lead_in):
        launch()
    events[0].record()
    for event in events[1:]:
        for _ in range(group):
            launch()
        event.record()
    events[0].synchronize()
    begin = time.perf_counter()
    events[-1].synchronize()
    end = time.perf_counter()
    times = [a.elapsed_time(b) / group for a, b in itertools.pairwise(events)]
    timing.launches += times
    timing.round_medians.append(median(times))
    timing.periods.append((begin, end))
    after = monitor.energy_joules()
    if energy is not None and after is not None:
        timing.joules += after - energy
        timing.measured_launches += lead_in + group * intervals
