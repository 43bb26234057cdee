# SPDX-License-Identifier: BSD-3-Clause
"""Attention on tensors as they come: attention() and its exact reference."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, Literal, overload

from . import _openvc
from ._call import lse_shape, run_attention
from ._checks import require_bool
from ._frameworks import arrays_of, check_operands
from ._native_options import native_options
from ._numerics import Budget, NumericsLike
from ._options import KeyOrder
from ._recipe import LayerRecipe, numerics_of_call
from ._threads import get_num_threads

EXACT_DTYPE = "float64"


@overload
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = ...,
    softmax_scale: float | None = ...,
    return_lse: Literal[False] = ...,
    key_order: KeyOrder = ...,
    budget: Budget | None = ...,
    numerics: NumericsLike = ...,
    recipe: LayerRecipe | None = ...,
) -> Any: ...


@overload
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = ...,
    softmax_scale: float | None = ...,
    return_lse: Literal[True],
    key_order: KeyOrder = ...,
    budget: Budget | None = ...,
    numerics: NumericsLike = ...,
    recipe: LayerRecipe | None = ...,
) -> tuple[Any, Any]: ...


def attention(
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
) -> Any:
    """softmax(softmax_scale Q K^T) V in FP8.

    Torch tensors, NumPy arrays and other DLPack arrays are read in place, in any strides whose
    channel axis is contiguous; nothing of the caller is modified. Torch tensors go through a
    registered operator wherever torch has to see the call, so compiled and exported models may
    contain it.

    Args:
        q: queries, [S, H, 128] or [B, S, H, 128], bfloat16, float16 or float32.
        k: keys of q's batch, heads, element type and device; their number may differ from q's.
        v: values, of k's shape.
        causal: query i sees the keys j <= i + Skv - Sq (aligned to the bottom right).
        softmax_scale: factor of the scores, 2**-126 to 2**124; 1/sqrt(128) by default.
        return_lse: also return the log-sum-exp of the scores.
        key_order: order in which key blocks are visited; it moves a few bits of the result.
        budget: time or accuracy: "fast", "balanced" (the default) or "best". docs/quality.md shows
            what each does to a model's output.
        numerics: numeric options one by one: a Numerics, or a mapping of the fields that differ from
            those of the budget.
        recipe: numeric options from a file, instead of the two: Recipe.load(path).at(layer, noise).

    Returns:
        The output: q's framework, shape, element type and device, contiguous, fresh. With
        `return_lse` a pair of it and the LSE: float32, natural logarithm, [H, Sq] or [B, H, Sq],
        -inf for a query that sees no key (whose output is zero).

    Raises:
        TypeError: an argument of a wrong type, element type, or framework.
        ValueError: an argument has a value or shape that cannot be honoured; a tensor requires
            grad (there is no backward).
        NotImplementedError: this build or device does not offer it.
        MemoryError: an allocation failed.
        RuntimeError: the CUDA driver reported an error.
    """
    arrays = arrays_of("q", q)
    can_skip_dispatcher = arrays.can_skip_dispatcher(q, k, v)
    if not can_skip_dispatcher:
        arrays, q, k, v = check_operands(q, k, v)
    require_bool("return_lse", return_lse)
    if recipe is not None:
        numerics = numerics_of_call(recipe, q, budget, numerics)
    if arrays.has_operators and not can_skip_dispatcher:
        from . import _torch_op

        if _torch_op.AVAILABLE:
            out = _torch_op.call(
                q, k, v, causal, softmax_scale, return_lse, key_order, budget, numerics
            )
            return arrays.wrap_operator_result(out)
    options = native_options(causal, softmax_scale, key_order, budget, numerics)
    out, lse = run_attention(arrays, q, k, v, options, return_lse)
    return (out, lse) if return_lse else out


def _as_rows(rows: Any) -> list[int]:
    """Indices of queries: whole numbers, at least one."""
    if isinstance(rows, (str, bytes)) or not isinstance(rows, Iterable):
        raise TypeError(
            f"rows: {type(rows).__name__}; expected a sequence of ints. Use [{rows!r}] for one row."
            if isinstance(rows, int)
            else f"rows: {type(rows).__name__}; expected a sequence of ints. Pass a list of them."
        )
    try:
        indices = [operator.index(row) for row in rows]
    except TypeError as error:
        raise TypeError(
            f"rows: {error}; expected ints. Use int(row) for each whole number."
        ) from None
    if not indices:
        raise ValueError("rows: empty; expected at least one query. Leave it out for all.")
    return indices


def exact_attention(
    q: Any,
    k: Any,
    v: Any,
    rows: Sequence[int] | None = None,
    *,
    causal: bool = False,
    softmax_scale: float | None = None,
    return_lse: bool = False,
) -> Any:
    """Attention in float64 on the CPU: the reference of every error figure.

    Time grows with rows x keys; a few hundred rows measure an error well.

    Args:
        q, k, v, causal, softmax_scale, return_lse: as for attention(), in CPU memory.
        rows: indices of the queries to compute, 0 <= row < Sq, in any order; None for all.

    Returns:
        float64 [R, H, 128] or [B, R, H, 128] for R rows, in q's framework; with `return_lse` a
        pair of it and the float64 LSE [H, R] or [B, H, R].

    Raises:
        TypeError, ValueError: as attention(); also for rows outside the queries.
        NotImplementedError: tensors of a device.
    """
    arrays, q, k, v = check_operands(q, k, v)
    require_bool("return_lse", return_lse)
    options = native_options(causal, softmax_scale, "mid_window", None)
    device = arrays.device_name(q)
    if device != "cpu":
        raise NotImplementedError(
            f"q, k, v: device {device}; expected cpu, where exact attention is computed. "
            "Use q.cpu(), k.cpu() and v.cpu()."
        )
    views = arrays.view("q", q), arrays.view("k", k), arrays.view("v", v)
    _openvc.require_exact_supported(*views, options)
    *batch, queries, heads, channels = views[0].array_shape
    indices = list(range(queries)) if rows is None else _as_rows(rows)
    outside = [row for row in indices if not 0 <= row < queries]
    if outside:
        raise ValueError(
            f"rows: {outside[0]}; expected 0 <= row < {queries}, the number of queries. "
            "Count them from 0."
        )
    shape = (*batch, len(indices), heads, channels)
    spec = arrays.output_spec(q)
    out, out_address = arrays.empty(shape, EXACT_DTYPE, spec)
    lse, lse_address = (
        arrays.empty(lse_shape(shape), EXACT_DTYPE, spec) if return_lse else (None, 0)
    )
    _openvc.exact_attention(
        *views,
        indices,
        out_address,
        lse_address,
        options,
        get_num_threads(),
    )
    out = arrays.wrap_result(out, spec)
    return (out, arrays.wrap_result(lse, spec)) if return_lse else out
