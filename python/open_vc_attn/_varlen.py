# SPDX-License-Identifier: BSD-3-Clause
"""Attention of packed sequences: attention_varlen()."""

from __future__ import annotations

from typing import Any, Literal, overload

from ._call import run_attention
from ._checks import require_bool
from ._frameworks import arrays_of, check_operands
from ._native_options import call_options, native_options
from ._numerics import Budget, NumericsLike
from ._options import KeyOrder
from ._recipe import LayerRecipe, numerics_of_call
from ._sequences import sequence_operands


@overload
def attention_varlen(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int | None = ...,
    max_seqlen_k: int | None = ...,
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
def attention_varlen(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int | None = ...,
    max_seqlen_k: int | None = ...,
    *,
    causal: bool = ...,
    softmax_scale: float | None = ...,
    return_lse: Literal[True],
    key_order: KeyOrder = ...,
    budget: Budget | None = ...,
    numerics: NumericsLike = ...,
    recipe: LayerRecipe | None = ...,
) -> tuple[Any, Any]: ...


def attention_varlen(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    *,
    causal: bool = False,
    softmax_scale: float | None = None,
    return_lse: bool = False,
    key_order: KeyOrder = "mid_window",
    budget: Budget | None = None,
    numerics: NumericsLike = None,
    recipe: LayerRecipe | None = None,
) -> Any:
    """attention() of sequences of unlike lengths that follow each other, in one call.

    The result of each sequence is, bit for bit, that of a call of its own. On a GPU the quantised
    inputs take the memory of as many sequences of the longest length: sort out sequences that are
    much longer than the others where that is too much.

    Args:
        q: queries of all sequences, [T, H, D], as for attention() otherwise.
        k, v: keys and values of all sequences, [Tk, Hkv, D].
        cu_seqlens_q: where the queries of each sequence begin, and the end of the last: integers
            [B + 1], from 0, never falling, at most T. Sequences may be empty. An array of q's
            framework on its device, where it is read without waiting for it, or on the CPU, or a
            sequence of ints. Those that the host can read are checked; on a GPU numbers that do not
            fit give a result without meaning, but nothing outside the tensors is touched.
        cu_seqlens_k: the same for keys; a sequence without any has an output of zeros.
        max_seqlen_q: tokens of the longest sequence of q, or more: what memory is reserved for. A
            longer sequence is cut there on a GPU. Needed where cu_seqlens_q is not read on the host.
        max_seqlen_k: the same for keys.
        causal, softmax_scale, return_lse, key_order, budget, numerics, recipe: as for attention(),
            within each sequence.

    Returns:
        The output, [T, H, D], as attention()'s otherwise. With `return_lse` a pair of it and the LSE
        [H, T]. Rows behind the last sequence are zero, and -inf in the LSE.

    Raises:
        As attention().
    """
    arrays = arrays_of("q", q)
    can_skip_dispatcher = arrays.can_skip_dispatcher(q, k, v)
    if not can_skip_dispatcher:
        arrays, q, k, v = check_operands(q, k, v)
    require_bool("return_lse", return_lse)
    if recipe is not None:
        numerics = numerics_of_call(recipe, q, budget, numerics)
    sequences = sequence_operands(
        arrays, q, k, (cu_seqlens_q, cu_seqlens_k), (max_seqlen_q, max_seqlen_k)
    )
    can_skip_dispatcher = can_skip_dispatcher and all(arrays.is_plain(x) for x in sequences[:2])
    if arrays.has_operators and not can_skip_dispatcher:
        from . import _torch_op

        if _torch_op.AVAILABLE:
            call = call_options(causal, softmax_scale, key_order, budget, numerics)
            out = _torch_op.call(q, k, v, call, return_lse, sequences=sequences)
            return arrays.wrap_operator_result(out)
    options = native_options(causal, softmax_scale, key_order, budget, numerics)
    out, lse = run_attention(arrays, q, k, v, options, return_lse, sequences=sequences)
    return (out, lse) if return_lse else out
