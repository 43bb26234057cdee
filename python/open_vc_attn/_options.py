# SPDX-License-Identifier: BSD-3-Clause
"""What a caller can ask for beside Numerics, and what a plan answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from . import _openvc
from ._checks import as_real, require_one_of

KeyOrder = Literal["mid_window", "descending"]

# Names of this module: compilers look into no extension.
_SMALLEST_SCALE = _openvc.SMALLEST_SOFTMAX_SCALE
_LARGEST_SCALE = _openvc.LARGEST_SOFTMAX_SCALE
SCALES = _openvc.SOFTMAX_SCALE_RANGE


@dataclass(frozen=True)
class HeadPlan:
    """What the preparation decided for one head, and why."""

    extra_steps: int
    """k-steps of residual columns."""

    rotated: bool
    """Rotation of Q and K: by Hadamard without extra steps, onto principal axes with them."""

    score_exponent: int
    """Scores count 2**score_exponent code units."""

    predicted_score_error: float
    """Standard deviation of the scores' rounding error under this plan, in code units."""


@dataclass(frozen=True)
class Support:
    """Whether a call would run. True in a condition if it would."""

    supported: bool
    reason: str = ""
    """Why not, and what to do; empty if supported."""

    def __bool__(self) -> bool:
        return self.supported


def is_softmax_scale(value: float) -> bool:
    """Whether attention takes this number as its scale."""
    # Comparisons alone: compilers can make them conditions on a scale that changes between calls.
    return _SMALLEST_SCALE <= value <= _LARGEST_SCALE


def as_softmax_scale(scale: Any) -> float | None:
    """The scale as a float, or None for the default 1/sqrt(head dimension)."""
    if scale is None:
        return None
    value = as_real("softmax_scale", scale)
    if is_softmax_scale(value):
        return value
    if not 0 < value < math.inf:
        raise ValueError(
            f"softmax_scale: {value}; expected a finite number > 0. Leave it out for 1/sqrt(D)."
        )
    raise ValueError(
        f"softmax_scale: {value}; expected {SCALES}, where its product with 8 log2(e) keeps the "
        "digits of single precision. Leave it out for 1/sqrt(D)."
    )


def as_key_order(key_order: Any) -> str:
    """The name of a key order."""
    return require_one_of("key_order", key_order, _openvc.KEY_ORDERS)


def as_repair_share(budget: Any) -> float:
    """The budget of V residual repair as a float."""
    value = as_real("budget", budget)
    if not 0 <= value < 1:
        raise ValueError(
            f"budget: {value}; expected 0 <= budget < 1, the share of tokens to repair. "
            "Use 0 for none."
        )
    return value
