# SPDX-License-Identifier: BSD-3-Clause
"""The official LTX-2 code (ltx-core): its models.

Attention modules there have their attention function as an attribute. enable() replaces it in those
with heads of a size that the kernels compute: 128 channels in the video, 64 in the audio.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from typing import Any

from .._arrays import HEAD_DIMS, is_head_dim
from .._switch import Switch
from ._framework import Framework

FRAMEWORK = Framework(
    title="LTX-2, official code (ltx-core)",
    module="ltx_core",
    distribution="ltx-core",
    oldest="1.0",
    switch="open_vc_attn.enable(model)",
)

_FUNCTIONS = ("attention_function", "masked_attention_function")
"""Attributes of attention modules; the second from version 1.1 on."""


def recognises(target: Any) -> bool:
    if FRAMEWORK.module not in sys.modules:
        return False
    import torch

    return isinstance(target, torch.nn.Module) and any(True for _ in _attention_modules(target))


def attach(target: Any, switch: Switch) -> None:
    from ._modules import add_module, replace_switch
    from ._readiness import device_of, require_device
    from .torch_sdpa import plain_name

    modules = list(_attention_modules(target))
    sizes = {module.dim_head for _, module in modules}
    if not any(map(is_head_dim, sizes)):
        raise ValueError(
            f"target: {type(target).__name__} has heads of {', '.join(map(str, sorted(sizes)))} "
            f"channels; expected {HEAD_DIMS}. This model cannot be computed in FP8."
        )
    require_device(device_of(target))
    replace_switch(target)
    for name, module in modules:
        if is_head_dim(module.dim_head):
            layer = add_module(switch, module, plain_name(name))
            layer.previous = {x: getattr(module, x) for x in _FUNCTIONS if hasattr(module, x)}
            layer.native = functools.partial(_native, layer.previous)
            switch.on_disable(functools.partial(_restore, module, layer.previous))
            for function in layer.previous:
                setattr(module, function, _replacement(function))
    _count_ordinals(switch)


def _attention_modules(model: Any) -> Iterator[tuple[str, Any]]:
    for name, module in model.named_modules():
        ours = type(module).__module__.split(".")[0] == FRAMEWORK.module
        if ours and hasattr(module, _FUNCTIONS[0]) and isinstance(module.dim_head, int):
            yield name, module


def _count_ordinals(switch: Switch) -> None:
    """Numbers the layers for recipes."""
    for ordinal, layer in enumerate(switch.layers):
        layer.ordinal = ordinal


def _restore(module: Any, previous: dict[str, Any]) -> None:
    for name, function in previous.items():
        if getattr(module, name) is _replacement(name):  # else somebody has set another meanwhile
            setattr(module, name, function)


@functools.cache
def _replacement(name: str) -> Any:
    """The attention function of all switched modules: one for all, or a compiler would compile each
    block anew."""
    import torch

    from ._dispatch import dispatch
    from ._modules import running_layer

    halves = (torch.float16, torch.bfloat16)

    def attention(q: Any, k: Any, v: Any, heads: int, mask: Any = None) -> Any:
        layer = running_layer()
        if layer is None:
            raise RuntimeError(
                f"{name}: called outside of its module; expected a call from its forward(). Call "
                "the module, or disable the switch first."
            )

        def as_before() -> Any:
            arguments = (q, k, v, heads) if mask is None else (q, k, v, heads, mask)
            return layer.previous[name](*arguments).unflatten(-1, (heads, -1))

        operands = [x.unflatten(-1, (heads, -1)) for x in (q, k, v)]
        if v.dtype in halves:  # as its functions on Hopper do
            operands = [x.to(v.dtype) for x in operands]
        out = dispatch(
            layer,
            *operands,
            native=as_before,
            mask=mask.unsqueeze(1) if mask is not None and mask.dim() == q.dim() else mask,
        )
        return out.flatten(-2)

    return attention


def _native(
    previous: dict[str, Any],
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Any = None,
    dropout: float = 0.0,
    causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
) -> Any:
    """A call of a compiled function; attention functions there know no other argument than masks."""
    if dropout or causal or scale is not None or return_lse:
        from ._native import sdpa

        return sdpa(
            q,
            k,
            v,
            mask=mask,
            dropout=dropout,
            causal=causal,
            scale=scale,
            return_lse=return_lse,
        )
    name = _FUNCTIONS[mask is not None and _FUNCTIONS[1] in previous]
    heads = q.shape[2]
    arguments = [x.flatten(-2) for x in (q, k, v)] + [heads] + ([] if mask is None else [mask])
    return previous[name](*arguments).unflatten(-1, (heads, -1))
