# SPDX-License-Identifier: BSD-3-Clause
"""A call that the kernels take meets the switch: policy, masks, count. Never traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .. import _attention, _varlen
from .._switch import Layer, Switch
from ._masks import key_padding

Native = Callable[[], Any]


class Call(NamedTuple):
    """The operands, [B, S, H, D], and arguments of a call."""

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
    key_mask = None
    if call.mask is not None:
        key_mask, reason = _key_mask(switch, layer, call)
        if reason:
            return without_fp8(layer, call, reason, native)
    count(layer, call, "")
    options = _call_options(switch, layer, call)
    return _attention.attention(
        call.q, call.k, call.v, causal=call.causal, key_mask=key_mask, **options
    )


def serve_packed(
    layer: Layer,
    call: Call,
    boundaries: tuple[Any, Any],
    longest: tuple[int, int],
    native: Native,
) -> Any:
    """The result, [T, H, D], of packed sequences that are a batch of one in `call`. Policy and report
    see the longest."""
    switch = layer.switch
    queries, keys = longest
    seen = call._replace(q=call.q[:, :queries], k=call.k[:, :keys], v=call.v[:, :keys])
    reason = _reason_of_policy(switch, layer, seen)
    if reason:
        return without_fp8(layer, call, reason, lambda: native()[None], may_fail=False)[0]
    count(layer, seen, "")
    return _varlen.attention_varlen(
        call.q[0],
        call.k[0],
        call.v[0],
        *boundaries,
        *longest,
        causal=call.causal,
        **_call_options(switch, layer, call),
    )


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


def _key_mask(switch: Switch, layer: Layer, call: Call) -> tuple[Any, str]:
    """The keys that a mask leaves, [B or 1, Skv]; or why FP8 cannot serve it."""
    if switch.options.masks == "refuse":
        return None, "mask"
    if call.causal:
        return None, "mask beside causal"
    if call.mask.device != call.q.device:
        return None, f"mask on {call.mask.device}"
    key_mask = key_padding(call.mask, call.q.shape[0], call.k.shape[1], layer.first_row_decides)
    if key_mask is None:
        return None, "mask that differs between queries or heads, or is not bool"
    return key_mask, ""


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
