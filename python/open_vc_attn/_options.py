# SPDX-License-Identifier: BSD-3-Clause
"""What a caller can ask for and what a plan answers: the Python twins of ``openvc/options.hpp``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

Choice = Literal["never", "automatic", "always"]
KeyOrder = Literal["mid_window", "descending"]
ValueScale = Literal["per_channel", "per_head"]

CHOICES: tuple[str, ...] = get_args(Choice)
KEY_ORDERS: tuple[str, ...] = get_args(KeyOrder)
VALUE_SCALES: tuple[str, ...] = get_args(ValueScale)

SMALLEST_SCALE = 2.0**-149
LARGEST_SCALE = (2.0 - 2.0**-23) * 2.0**127
_EXTRA_STEPS = (0, 1, 2, 4)


@dataclass(frozen=True)
class Numerics:
    """Where the error budget goes. The defaults are those that docs/numerics.md derives.

    Raises:
        TypeError: a field has the wrong type.
        ValueError: a field has a value outside its range.
    """

    smooth_keys: bool = True
    """Subtract the token mean of K; the softmax does not change (SageAttention2, VC-Attention)."""

    rotation: Choice = "automatic"
    """Hadamard rotation of Q and K (VC-Attention). It excludes residual columns: "automatic"
    rotates heads without them where that is predicted to help, "always" rotates every head."""

    max_extra_steps: int = 2
    """Upper limit of extra k-steps of QK residual columns per head: 0, 1, 2 or 4. Each costs
    12.5 % of the matrix products of the heads that use it."""

    score_error_target: float = 0.32
    """What a k-step must be worth: one is spent where it removes more than this standard
    deviation, in code units (1/8 octave), from the scores of a head. 0 spends max_extra_steps in
    every head."""

    tail_correction: Choice = "automatic"
    """Follow E4M3's subnormals in the tail of ExpCast. Costs about 6 % of a head's time."""

    centre_values: bool = True
    """Remove the token mean of every channel of V before rounding and add it to the output."""

    value_scale: ValueScale = "per_channel"
    """Granularity of V's scale."""

    def __post_init__(self) -> None:
        for name in ("smooth_keys", "centre_values"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(
                    f"numerics.{name} must be True or False, not {getattr(self, name)!r}"
                )
        require_one_of("numerics.rotation", self.rotation, CHOICES)
        require_one_of("numerics.tail_correction", self.tail_correction, CHOICES)
        require_one_of("numerics.value_scale", self.value_scale, VALUE_SCALES)
        steps = self.max_extra_steps
        if isinstance(steps, bool) or not isinstance(steps, int):
            raise TypeError(f"numerics.max_extra_steps must be an int, not {steps!r}")
        if steps not in _EXTRA_STEPS:
            raise ValueError(f"numerics.max_extra_steps must be 0, 1, 2 or 4, not {steps}")
        target = as_real("numerics.score_error_target", self.score_error_target)
        if not (math.isfinite(target) and target >= 0):
            raise ValueError(f"numerics.score_error_target must be finite and >= 0, not {target}")
        # A number of its own: what the caller gave may change, or not be hashable.
        object.__setattr__(self, "score_error_target", target)


@dataclass(frozen=True)
class HeadPlan:
    """What the preparation decided for one head, and why."""

    extra_steps: int
    """k-steps of residual columns."""

    rotated: bool
    """Hadamard rotation of Q and K."""

    tail_correction: bool
    """ExpCast follows E4M3's subnormals."""

    score_exponent: int
    """Scores count 2**score_exponent code units."""

    predicted_score_error: float
    """Standard deviation of the scores' rounding error under this plan, in code units."""

    predicted_flush: float
    """Softmax mass that plain ExpCast would lose, 0..1."""


@dataclass(frozen=True)
class Support:
    """Whether a call would run. True in a condition if it would."""

    supported: bool
    reason: str = ""
    """Why not, and what to do; empty if supported."""

    def __bool__(self) -> bool:
        return self.supported


NumericsLike = Numerics | Mapping[str, Any] | None


def as_numerics(numerics: NumericsLike) -> Numerics:
    """A ``Numerics`` from what callers may pass; a mapping names the fields that differ."""
    if numerics is None:
        return _DEFAULT_NUMERICS
    if isinstance(numerics, Numerics):
        return numerics
    if not isinstance(numerics, Mapping):
        raise TypeError(
            "numerics must be None, a Numerics or a mapping of its fields, "
            f"not {type(numerics).__name__}"
        )
    unknown = [str(name) for name in numerics if name not in _FIELDS]
    if unknown:
        raise TypeError(f"numerics has no field {', '.join(unknown)}; it has {', '.join(_FIELDS)}")
    return Numerics(**numerics)


def as_softmax_scale(scale: Any) -> float | None:
    """The scale as a float, or None for the default 1/sqrt(head dimension)."""
    if scale is None:
        return None
    value = as_real("softmax_scale", scale)
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"softmax_scale must be finite and > 0, not {value}")
    if not SMALLEST_SCALE <= value <= LARGEST_SCALE:
        raise ValueError(
            f"softmax_scale must be {SMALLEST_SCALE:.1e} to {LARGEST_SCALE:.1e}, the range of "
            f"single precision, not {value}"
        )
    return value


def as_budget(budget: Any) -> float:
    """A repair budget as a float."""
    value = as_real("budget", budget)
    if not 0 <= value < 1:
        raise ValueError(f"budget is the share of tokens to repair, 0 <= budget < 1, not {value}")
    return value


def require_bool(name: str, value: Any) -> bool:
    """`value` if it is a bool."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return value


def require_one_of(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """`value` if it is one of `allowed`."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {type(value).__name__}")
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
    return value


def as_real(name: str, value: Any) -> float:
    """`value` as a float; booleans and strings are no numbers."""
    if isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    return float(value)


_DEFAULT_NUMERICS = Numerics()
_FIELDS = tuple(field.name for field in fields(Numerics))
