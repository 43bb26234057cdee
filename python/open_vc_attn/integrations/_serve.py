# SPDX-License-Identifier: BSD-3-Clause
"""A call that the kernels take meets the switch: policy, masks, count. Never traced.

Imports torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from .. import _attention
from .._switch import Layer, Switch
from ._masks import key_padding, valid_keys

Native = Callable[[], Any]


class Call(NamedTuple):
    """The operands, [B, S, H, 128], and arguments of a call."""

    q: Any
    k: Any
    v: Any
    mask: Any
    causal: bool
    scale: float | None
    return_lse: bool
    cross: bool
    ordinal: int | None = None
    """The layer of a recipe, where the adapter counts calls."""
    shards: int = 1
    """Processes over which queries and keys are spread."""


def serve(layer: Layer, call: Call, native: Native) -> Any:
    """The result of a call, from the kernels or from `native`."""
    switch = layer.switch
    if not switch.enabled:
        return native()
    reason = _reason_of_policy(switch, layer, call)
    if reason:
        return without_fp8(layer, call, reason, native, may_fail=False)
    padding = None
    if call.mask is not None:
        padding, reason = _padding(switch, layer, call)
        if reason:
            return without_fp8(layer, call, reason, native)
    count(layer, call, "")
    options = _call_options(switch, layer, call)
    if padding is None:
        return _attention.attention(call.q, call.k, call.v, causal=call.causal, **options)
    return _without_masked_keys(call, valid_keys(call.mask, padding), options)


def without_fp8(
    layer: Layer, call: Call, reason: str, native: Native, *, may_fail: bool = True, dropout=0.0
) -> Any:
    """Counts a call that FP8 does not serve, and has it served.

    `may_fail`: the kernels, not the policy, are against it.
    """
    switch = layer.switch
    count(layer, call, reason)
    otherwise = switch.options.otherwise
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
    if may_fail and not _reason_of_policy(switch, layer, call):
        if otherwise == "error":
            raise NotImplementedError(not_served(layer.name or "attention", reason))
        switch.warn_once(
            reason,
            f"{layer.name or 'attention'} is not computed in FP8: {reason}; switch.report() counts "
            "such calls",
        )
    return native()


def not_served(name: str, reason: str) -> str:
    """The text of the error that enable(otherwise="error") asks for."""
    return (
        f"{name}: {reason}; expected a call that FP8 attention serves. Pass "
        'otherwise="native" to enable(), or leave the layer out by Policy(layers=...).'
    )


def count(layer: Layer, call: Call, reason: str, traced: bool = False) -> None:
    """Enters a call into the report of its switch."""
    q, k = call.q, call.k
    queries, heads = (q.shape[1], q.shape[2]) if q.dim() == 4 else (q.shape[-2], 1)
    keys = k.shape[1] if k.dim() == 4 else k.shape[-2]
    layer.switch.count(layer, queries, keys, heads, reason, traced)


def _reason_of_policy(switch: Switch, layer: Layer, call: Call) -> str:
    step = switch.current_step() if switch.policy.needs_steps else None
    reason = switch.policy.reason_against(
        call.q.shape[1] * call.shards,
        call.k.shape[1] * call.shards,
        call.cross,
        switch.place(layer),
        step,
    )
    recipe = switch.options.recipe
    if reason or recipe is None:
        return reason
    ordinal = _ordinal(layer, call)
    if ordinal is None:
        return "recipe: the number of the layer is unknown"
    return "" if ordinal in recipe.layers else f"recipe: no layer {ordinal}"


def _ordinal(layer: Layer, call: Call) -> int | None:
    return layer.ordinal if call.ordinal is None else call.ordinal


def _padding(switch: Switch, layer: Layer, call: Call) -> tuple[Any, str]:
    """The keys that a mask leaves, [B or 1, Skv], None for all; or why FP8 cannot serve it."""
    if switch.options.masks == "refuse":
        return None, "mask"
    if call.causal:
        return None, "mask beside causal"
    padding = key_padding(call.mask, call.q.shape[0], call.k.shape[1], layer.first_row_decides)
    if padding is None:
        return None, "mask that differs between queries or heads, or is not bool"
    if call.mask.is_cuda and torch.cuda.is_current_stream_capturing():
        return None, "mask in a CUDA graph"
    lengths = [keys.length for keys in valid_keys(call.mask, padding)]
    if 0 in lengths:
        return None, "mask that hides all keys"
    return (None if min(lengths) == call.k.shape[1] else padding), ""


def _call_options(switch: Switch, layer: Layer, call: Call) -> dict[str, Any]:
    options = switch.options
    found = {
        "softmax_scale": call.scale,
        "key_order": options.key_order,
        "return_lse": call.return_lse,
    }
    if options.recipe is None:
        return {**found, "budget": options.budget, "numerics": options.numerics}
    step = switch.current_step()
    noise = None if step is None else step.noise
    return {**found, "recipe": options.recipe.at(_ordinal(layer, call), noise)}


def _without_masked_keys(call: Call, keys: list[Any], options: dict[str, Any]) -> Any:
    """Attention over the valid keys of each item: one call for all that have the same."""
    batch = call.q.shape[0]
    if len(keys) == 1 and (batch == 1 or keys[0].where is None):
        # The same keys for all items.
        k, v = (keys[0].of(x) for x in (call.k, call.v))
        return _attention.attention(call.q, k, v, **options)
    parts = []
    for item in range(batch):
        valid = keys[item % len(keys)]
        one = slice(item, item + 1)
        parts.append(
            _attention.attention(
                call.q[one], valid.of(call.k[one]), valid.of(call.v[one]), **options
            )
        )
    if call.return_lse:
        return tuple([torch.cat(x) for x in zip(*parts, strict=True)])
    return torch.cat(parts)
