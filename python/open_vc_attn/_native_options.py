# SPDX-License-Identifier: BSD-3-Clause
"""Options of a call in the form that the C++ library takes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from . import _openvc
from ._options import (
    KEY_ORDERS,
    Numerics,
    NumericsLike,
    as_numerics,
    as_softmax_scale,
    require_bool,
    require_one_of,
)

CACHED_OPTIONS = 256


def native_options(
    causal: Any, softmax_scale: Any, key_order: Any, numerics: NumericsLike
) -> _openvc.AttentionOptions:
    """Checked options of a call. The result is shared between calls: read only."""
    return _cached_options(
        require_bool("causal", causal),
        as_softmax_scale(softmax_scale),
        require_one_of("key_order", key_order, KEY_ORDERS),
        as_numerics(numerics),
    )


@lru_cache(maxsize=CACHED_OPTIONS)
def _cached_options(
    causal: bool, softmax_scale: float | None, key_order: str, numerics: Numerics
) -> _openvc.AttentionOptions:
    native = _openvc.NumericOptions()
    native.smooth_keys = numerics.smooth_keys
    native.rotation = getattr(_openvc.Choice, numerics.rotation)
    native.max_extra_steps = numerics.max_extra_steps
    native.score_error_target = float(numerics.score_error_target)
    native.tail_correction = getattr(_openvc.Choice, numerics.tail_correction)
    native.centre_values = numerics.centre_values
    native.value_scale = getattr(_openvc.ValueScale, numerics.value_scale)
    options = _openvc.AttentionOptions()
    options.mask = _openvc.Mask.causal if causal else _openvc.Mask.none
    options.softmax_scale = softmax_scale
    options.key_order = getattr(_openvc.KeyOrder, key_order)
    options.numerics = native
    return options
