# SPDX-License-Identifier: BSD-3-Clause
"""Options of a call in the form that the C++ library takes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from . import _openvc
from ._checks import require_bool
from ._numerics import NAMES, Numerics, NumericsLike, as_numerics, values_of
from ._options import as_key_order, as_softmax_scale

CACHED_OPTIONS = 256
OPTION_COUNT = 3 + len(NAMES)
"""Of what call_options() returns."""


def native_options(
    causal: Any,
    softmax_scale: Any,
    key_order: Any,
    budget: Any = None,
    numerics: NumericsLike = None,
) -> _openvc.AttentionOptions:
    """Checked options of a call. The result is shared between calls: read only."""
    return cached_options(*call_options(causal, softmax_scale, key_order, budget, numerics))


def call_options(
    causal: Any,
    softmax_scale: Any,
    key_order: Any,
    budget: Any = None,
    numerics: NumericsLike = None,
) -> tuple[Any, ...]:
    """Checked options as the arguments of the torch operators, and of cached_options()."""
    return (
        require_bool("causal", causal),
        as_softmax_scale(softmax_scale),
        as_key_order(key_order),
        *values_of(as_numerics(numerics, budget)),
    )


@lru_cache(maxsize=CACHED_OPTIONS)
def cached_options(
    causal: bool, softmax_scale: float | None, key_order: str, *numerics: Any
) -> _openvc.AttentionOptions:
    """The same from values of the right types, which the operators receive unchecked."""
    return _openvc.AttentionOptions(
        causal, as_softmax_scale(softmax_scale), as_key_order(key_order), Numerics(*numerics)
    )
