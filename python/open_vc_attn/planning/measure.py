# SPDX-License-Identifier: BSD-3-Clause
"""Errors and extra steps of the candidates on captures, against exact attention of some queries."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from .. import attention_fp8, exact_attention, prepare_fp8
from .._capture_file import Capture
from .._numerics import BUDGETS, Numerics
from .captures import Captures, Place, Source

GOLDEN_RATIO = (math.sqrt(5) - 1) / 2
LEAST_OPTION_GAIN = 0.05
"""Share of the squared error that another option than the default has to remove."""
LEAST_OPTION_SIGNIFICANCE = 3.0
"""Standard errors of the mean gain by which it has to be above 0: several options are tried on
some hundred queries."""

STEPS: Mapping[str, Mapping[str, Any]] = {
    "0 steps": {"max_extra_steps": 0},
    **{
        name: {key: getattr(numerics, key) for key in ("max_extra_steps", "score_error_target")}
        for name, numerics in BUDGETS.items()
    },
    "up to 2 at 0.16": {"max_extra_steps": 2, "score_error_target": 0.16},
    "1 step": {"max_extra_steps": 1, "score_error_target": 0.0},
    "4 steps": {"max_extra_steps": 4, "score_error_target": 0.0},
}
"""How a layer may spend on extra steps: the candidates of every layer."""

OPTIONS: Sequence[Mapping[str, Any]] = (
    {"value_axes": "always"},
    {"value_axes": "never"},
    {"smooth_values": False},
    {"smooth_keys": False},
)
"""What costs hardly any time, tried one after the other: kept where it helps."""


class Measured(NamedTuple):
    """What numeric options do, mean over the captures of a place, in terms of all its queries."""

    planned: float
    """Squared error of the output, from the queries that the plan is made from."""
    held_out: float
    """The same from other queries."""
    extra_steps: float
    row_errors: Sequence[float]
    """Squared errors of the queries that the plan is made from, one capture after the other."""


@dataclass
class Measurement:
    """A layer at a noise level."""

    place: Place
    work: float
    """Pairs of queries and keys of all heads."""
    planned_energy: float
    """Squares of the exact output, from the queries that the plan is made from."""
    held_out_energy: float
    options: Mapping[str, Any]
    """What differs from the defaults in all candidates."""
    candidates: Sequence[Numerics]
    """As STEPS."""
    measured: Sequence[Measured]
    """Of the candidates."""
    budgets: Mapping[str, Measured]
    """Of the budgets as they are."""


Progress = Callable[[str], None]


def measure(
    captures: Captures, rows: int, device: torch.device, progress: Progress
) -> list[Measurement]:
    """Measures all candidates of all places."""
    found = []
    for place, sources in captures.sources.items():
        progress(f"{place}: {len(sources)} capture{'s' if len(sources) > 1 else ''}")
        probes = [_Probe(source, captures.heads, rows, device) for source in sources]
        found.append(_measure(place, probes))
    if not any(measurement.planned_energy for measurement in found):
        raise ValueError(
            "--input: outputs that are zero everywhere; expected captures with an output. Check "
            "how they were recorded."
        )
    return found


def _measure(place: Place, probes: Sequence[_Probe]) -> Measurement:
    seen: dict[Numerics, Measured] = {}

    def of(numerics: Numerics) -> Measured:
        if numerics not in seen:
            seen[numerics] = _mean([probe.measure(numerics) for probe in probes])
        return seen[numerics]

    budgets = {name: of(numerics) for name, numerics in BUDGETS.items()}
    base = Numerics()
    for option in OPTIONS:
        tried = replace(base, **option)
        if is_better(of(tried).row_errors, of(base).row_errors):
            base = tried
    candidates = [replace(base, **steps) for steps in STEPS.values()]
    return Measurement(
        place,
        work=_average([probe.work for probe in probes]),
        planned_energy=_average([probe.energies[0] for probe in probes]),
        held_out_energy=_average([probe.energies[1] for probe in probes]),
        options={
            name: getattr(base, name)
            for option in OPTIONS
            for name in option
            if getattr(base, name) != getattr(Numerics(), name)
        },
        candidates=candidates,
        measured=[of(numerics) for numerics in candidates],
        budgets=budgets,
    )


def is_better(new: Sequence[float], old: Sequence[float]) -> bool:
    """Whether squared errors of the same queries are lower on the whole, and not by chance."""
    gains = [b - a for a, b in zip(new, old, strict=True)]
    mean = _average(gains)
    if mean <= LEAST_OPTION_GAIN * _average(old) or len(gains) == 1:
        return False
    variance = math.fsum((gain - mean) ** 2 for gain in gains) / (len(gains) - 1)
    return mean > LEAST_OPTION_SIGNIFICANCE * math.sqrt(variance / len(gains))


def sampled_rows(queries: int, count: int) -> tuple[list[int], list[int]]:
    """Up to `count` queries to plan from and as many others, from all of the sequence.

    One from each of equal strata, jittered: an even stride could see one column of an image.
    """
    strata = min(queries, 2 * count)
    rows = []
    for i in range(strata):
        begin, end = i * queries // strata, (i + 1) * queries // strata
        rows.append(begin + int(i * GOLDEN_RATIO % 1 * (end - begin)))
    return rows[::2], rows[1::2] or rows[::2]


class _Probe:
    """A capture in memory, with exact attention of the sampled queries."""

    def __init__(self, source: Source, heads: int, rows: int, device: torch.device) -> None:
        capture = source.load()
        planned, held_out = sampled_rows(source.queries, rows)
        self._path = source.path
        self._qkv = tuple(x.to(device) for x in capture[:3])
        self._options = {"causal": capture.causal, "softmax_scale": capture.softmax_scale}
        self._rows = torch.tensor(planned + held_out)
        self._split = len(planned)
        self._exact = _exact(capture, planned + held_out)
        if not bool(self._exact.isfinite().all()):
            raise ValueError(
                f"{source.path}: found an exact output that is not finite; expected finite "
                "inputs. Leave the file out."
            )
        # Of a call of one batch item with all heads and queries.
        whole = heads / source.captured_heads / self._exact.shape[0]
        self._scales = [whole * source.queries / len(part) for part in (planned, held_out)]
        self.work = float(heads * source.queries * source.keys)
        self.energies = self._sums(self._exact.square().sum(-1))
        self._by_plan: dict[Any, Measured] = {}

    def measure(self, numerics: Numerics) -> Measured:
        prepared = prepare_fp8(*self._qkv, **self._options, numerics=numerics)
        # Limits and prices of steps matter through the plans alone.
        others = replace(numerics, max_extra_steps=0, score_error_target=0.0)
        key = others, tuple(prepared.plans)
        if key not in self._by_plan:
            self._by_plan[key] = self._compare(prepared)
        return self._by_plan[key]

    def _compare(self, prepared: Any) -> Measured:
        found = attention_fp8(prepared)[:, self._rows.to(self._qkv[0].device)].cpu().double()
        errors = (found - self._exact).square().sum(-1)
        if not bool(errors.isfinite().all()):
            raise ValueError(
                f"{self._path}: found an output that is not finite; expected finite ones. Leave "
                "the file out."
            )
        planned, held_out = self._sums(errors)
        steps = [plan.extra_steps for plan in prepared.plans]
        rows = self._scales[0] * errors[:, : self._split].sum((0, 2))
        return Measured(planned, held_out, _average(steps), rows.tolist())

    def _sums(self, squares: torch.Tensor) -> tuple[float, float]:
        """Of [B, rows, H]: those to plan from and the others, for all queries and heads."""
        parts = squares[:, : self._split], squares[:, self._split :]
        first, second = (
            scale * float(part.sum()) for scale, part in zip(self._scales, parts, strict=True)
        )
        return first, second


def _exact(capture: Capture, rows: Sequence[int]) -> torch.Tensor:
    return exact_attention(
        *capture[:3], rows, causal=capture.causal, softmax_scale=capture.softmax_scale
    )


def _mean(measured: Sequence[Measured]) -> Measured:
    return Measured(
        _average([m.planned for m in measured]),
        _average([m.held_out for m in measured]),
        _average([m.extra_steps for m in measured]),
        [error for m in measured for error in m.row_errors],
    )


def _average(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
