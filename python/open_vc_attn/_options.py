# SPDX-License-Identifier: BSD-3-Clause
"""What a caller can ask for beside Numerics, and what a plan answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from . import _openvc
from ._checks import as_real, require_one_of

KeyOrder = Literal["mid_window", "descending"]

SMALLEST_SCALE = 2.0**-149
LARGEST_SCALE = (2.0 - 2.0**-23) * 2.0**127
_SCALES = f"{SMALLEST_SCALE:.1e} to {LARGEST_SCALE:.1e}"


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


def as_softmax_scale(scale: Any) -> float | None:
    """The scale as a float, or None for the default 1/sqrt(head dimension)."""
    if scale is None:
        return None
    value = as_real("softmax_scale", scale)
    # Comparisons alone: compilers can make them conditions on a scale that changes between calls.
    if SMALLEST_SCALE <= value <= LARGEST_SCALE:
        return value
    if not 0 < value < math.inf:
        raise ValueError(
            f"softmax_scale: {value}; expected a finite number > 0. Leave it out for 1/sqrt(D)."
        )
    raise ValueError(
        f"softmax_scale: {value}; expected {_SCALES}, the range "
        "of single precision. Leave it out for 1/sqrt(D)."
    )


def as_key_order(key_order: Any) -> str:
    """The name of a key order."""
    return require_one_of("key_order", key_order, _openvc.KEY_ORDERS)


def as_budget(budget: Any) -> float:
    """A repair budget as a float."""
    value = as_real("budget", budget)
    if not 0 <= value < 1:
        raise ValueError(
            f"budget: {value}; expected 0 <= budget < 1, the share of tokens to repair. "
            "Use 0 for none."
        )
    return value
