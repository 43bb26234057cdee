# SPDX-License-Identifier: BSD-3-Clause
"""The way of every attention call of a switched model. Imports torch.

First the properties of types and shapes, which a compiler folds; then, at run time and in compiled
functions inside an operator, the policy.
"""

from __future__ import annotations

from typing import Any

import torch

from .._switch import Layer, switch_of
from . import _operator
from ._serve import Call, Native, not_served, serve, without_fp8
from ._table import refusal


def dispatch(
    layer: Layer | None,
    q: Any,
    k: Any,
    v: Any,
    *,
    native: Native,
    mask: Any = None,
    dropout: float = 0.0,
    causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
    cross: bool | None = None,
    bottom_right: bool = False,
    grouped: bool = True,
    ordinal: int | None = None,
    shards: int = 1,
    refused: str = "",
) -> Any:
    """Attention of [B, S, H, D], in FP8 where kernels, switch and policy allow it.

    Args:
        layer: whose call it is; None for nobody's, which `native` serves.
        q, k, v: any strides, so views of other layouts are welcome. Callers that promise one
            element type convert to it before.
        native: serves the call as if there were no switch. Its result has the layout of the others'.
        mask: broadcasts to [B, H, Sq, Skv]; bool or additive.
        dropout: probability.
        causal: from the top left, as torch does; with `bottom_right` as the kernels do.
        grouped: whether a number of heads of q may share each head of k and v, in order; without
            it `native` decides about unlike numbers of heads.
        scale: 1/sqrt(D) by default.
        return_lse: a pair of the output and the LSE, [B, H, Sq], float32, natural logarithm.
        cross: whether queries and keys are of different sequences; by default if their numbers
            differ.
        ordinal: the number of the call within a forward pass, for recipes, where Layer.ordinal is
            None.
        shards: processes that hold a part of the tokens each: the policy counts those of all.
        refused: why FP8 attention cannot serve the call, where only the adapter knows (a window).

    Returns:
        [B, Sq, H, D], and the LSE if asked for.
    """
    if layer is None or not layer.switch.enabled:
        return native()
    q, k, v = _as_autocast(q, k, v)
    if cross is None:
        cross = q.shape[1] != k.shape[1] if q.dim() == k.dim() == 4 else False
    call = Call(q, k, v, mask, causal, scale, return_lse, cross, ordinal, shards)
    compiling = torch.compiler.is_compiling()
    # Inside the operator torch's attention serves the rest, with its own alignment.
    bottom_right = bottom_right and not compiling
    reason = refused or refusal(
        q,
        k,
        v,
        dropout=dropout,
        causal=causal,
        scale=scale,
        bottom_right=bottom_right,
        grouped=grouped,
    )
    if compiling:
        if reason:
            return _traced_without_fp8(layer, call, reason, native, dropout)
        return _operator.call(layer, call)
    if reason:
        return without_fp8(layer, call, reason, native, dropout=dropout)
    return serve(layer, call, native)


def _as_autocast(q: Any, k: Any, v: Any) -> tuple[Any, Any, Any]:
    """Operands in the type to which torch's attention would convert them."""
    device = q.device.type
    if device not in ("cpu", "cuda") or not torch.is_autocast_enabled(device):
        return q, k, v
    dtype = torch.get_autocast_dtype(device)
    return q.to(dtype), k.to(dtype), v.to(dtype)


def _traced_without_fp8(
    layer: Layer, call: Call, reason: str, native: Native, dropout: float
) -> Any:
    """The same as without_fp8() for a compiler, which must not see the number of the layer: it
    would compile every block of a model anew."""
    _note_traced(layer.switch.number, reason)
    otherwise = layer.switch.options.otherwise
    if otherwise == "error":
        raise NotImplementedError(not_served("attention", reason))
    if callable(otherwise):
        return otherwise(
            call.q,
            call.k,
            call.v,
            mask=call.mask,
            dropout=dropout,
            causal=call.causal,
            scale=call.scale,
            return_lse=call.return_lse,
        )
    return native()


@torch.compiler.assume_constant_result
def _note_traced(number: int, reason: str) -> None:
    """Enters into the report what a compiler sees. It calls this while it traces."""
    switch = switch_of(number)
    if switch is not None:
        switch.count(None, 0, 0, 0, reason, True)
