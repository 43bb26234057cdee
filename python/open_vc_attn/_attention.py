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
from ._key_selection import key_operands
from ._native_options import call_options, native_options
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
    key_lengths: Any = ...,
    key_mask: Any = ...,
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
    key_lengths: Any = ...,
    key_mask: Any = ...,
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
    key_lengths: Any = None,
    key_mask: Any = None,
) -> Any:
    """softmax(softmax_scale Q K^T) V in FP8.

    Torch tensors, NumPy arrays and other DLPack arrays are read in place, in any strides whose
    channel axis is contiguous; nothing of the caller is modified. Torch tensors go through a
    registered operator wherever torch has to see the call, so compiled and exported models may
    contain it.

    Args:
        q: queries, [S, H, D] or [B, S, H, D], bfloat16, float16 or float32. D is a multiple of 8 up
            to 128.
        k: keys of q's batch, channels, element type and device. Their number may differ from q's;
            the number of their heads divides that of q's, of which head h uses head
            h // (heads of q // heads of k).
        v: values, of k's shape.
        causal: query i sees the keys j <= i + Skv - Sq (aligned to the bottom right).
        softmax_scale: factor of the scores, 2**-126 to 2**124; 1/sqrt(D) by default.
        return_lse: also return the log-sum-exp of the scores.
        key_order: order in which key blocks are visited; it moves a few bits of the result.
        budget: time or accuracy: "fast", "balanced" (the default) or "best". docs/quality.md shows
            what each does to a model's output.
        numerics: numeric options one by one: a Numerics, or a mapping of the fields that differ from
            those of the budget.
        recipe: numeric options from a file, instead of the two: Recipe.load(path).at(layer, noise).
        key_lengths: how many keys of each sequence take part, the first ones: integers [B], in q's
            framework and on its device, where they are read without waiting for them, or a
            sequence of ints; one number where there is one sequence. What is below 0 or above the
            number of keys counts as those. Not with causal.
        key_mask: which keys take part: bool or uint8, [B, Skv], or [Skv] or [1, Skv] for all
            sequences, in any strides, as key_lengths otherwise. With both, the keys that both name.
            Other keys do not exist: the result is, bit for bit, that of a call without them,
            whatever they hold.

    Returns:
        The output: q's framework, shape, element type and device, contiguous, fresh. With
        `return_lse` a pair of it and the LSE: float32, natural logarithm, [H, Sq] or [B, H, Sq],
        -inf for a query that sees no key (whose output is zero, not NaN).

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
    if key_lengths is not None or key_mask is not None:
        key_lengths, key_mask = key_operands(arrays, q, key_lengths, key_mask)
        can_skip_dispatcher = (
            can_skip_dispatcher and arrays.is_plain(key_lengths) and arrays.is_plain(key_mask)
        )
    if arrays.has_operators and not can_skip_dispatcher:
        from . import _torch_op

        if _torch_op.AVAILABLE:
            call = call_options(causal, softmax_scale, key_order, budget, numerics)
            out = _torch_op.call(q, k, v, call, return_lse, key_lengths, key_mask)
            return arrays.wrap_operator_result(out)
    options = native_options(causal, softmax_scale, key_order, budget, numerics)
    out, lse = run_attention(arrays, q, k, v, options, return_lse, key_lengths, key_mask)
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
        q, k, v, causal, softmax_scale, return_lse: as for attention(), in CPU memory; any D. For
            some of the keys pass those alone.
        rows: indices of the queries to compute, 0 <= row < Sq, in any order; None for all.

    Returns:
        float64 [R, H, D] or [B, R, H, D] for R rows, in q's framework; with `return_lse` a
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
