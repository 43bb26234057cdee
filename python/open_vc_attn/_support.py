# SPDX-License-Identifier: BSD-3-Clause
"""The question whether a call would run, answered without touching a number."""

from __future__ import annotations

from typing import Any

from ._checks import require_bool
from ._frameworks import check_operands
from ._key_selection import key_operands, require_selection
from ._native_options import call_options
from ._numerics import Budget, NumericsLike
from ._options import KeyOrder, Support
from ._recipe import LayerRecipe, numerics_of_call


def is_supported(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    softmax_scale: float | None = None,
    return_lse: bool = False,
    key_order: KeyOrder = "mid_window",
    budget: Budget | None = None,
    numerics: NumericsLike = None,
    recipe: LayerRecipe | None = None,
    key_lengths: Any = None,
    key_mask: Any = None,
) -> Support:
    """Whether attention() with these arguments would run, and if not, why and what to do.

    The answer comes from types, shapes, strides and devices alone; nothing is computed. Meant for
    dispatchers that fall back to another implementation. It raises nothing, whatever objects the
    arguments are, and may be part of compiled and exported models, where the answer is a constant.
    Fake tensors are judged by the devices of this machine.

    Returns:
        A Support: true in a condition if supported, else with the text of the error as `reason`.
    """
    try:
        arrays, q, k, v = check_operands(q, k, v, use=False)
        require_bool("return_lse", return_lse)
        if recipe is not None:
            numerics = numerics_of_call(recipe, q, budget, numerics)
        selects = key_lengths is not None or key_mask is not None
        if selects:
            keys = key_operands(arrays, q, key_lengths, key_mask, use=False)
        options = call_options(causal, softmax_scale, key_order, budget, numerics)
        if selects:
            require_selection(arrays, q, k, causal, *keys)
        return Support(*arrays.support(q, k, v, options))
    except Exception as error:  # objects of the caller raise what they like
        return Support(False, str(error) or type(error).__name__)
