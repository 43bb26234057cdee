# SPDX-License-Identifier: BSD-3-Clause
"""The official Wan 2.1 and 2.2 code: its models, and the pipelines that hold them.

Attention there is a function, flash_attention, that other modules imported by name. While a switch
is on, those names are a function that serves switched models and passes all other calls on.
"""

from __future__ import annotations

import functools
import sys
import threading
from typing import Any

from .._switch import Switch
from ._framework import Framework
from .torch_sdpa import plain_module, switch_module

FRAMEWORK = Framework(
    title="Wan 2.1 and 2.2, official code",
    module="wan",
    distribution="",
    oldest="",
    switch="open_vc_attn.enable(pipeline), or of a WanModel",
)

_ATTENTION = "wan.modules.attention"
_FUNCTION = "flash_attention"
_MODELS = ("model", "low_noise_model", "high_noise_model")
"""Attributes of its pipelines that hold models."""
_NO_WINDOW = (-1, -1)

_lock = threading.RLock()
_users: list[Switch] = []


def recognises(target: Any) -> bool:
    loaded = _ATTENTION in sys.modules and hasattr(sys.modules[_ATTENTION], _FUNCTION)
    return loaded and bool(_models(target))


def attach(target: Any, switch: Switch) -> None:
    from ._readiness import device_of, require_device

    models = _models(target)
    for name, model in models.items():
        device = getattr(target, "device", None)
        require_device(device_of(model) if device is None else device)
        switch_module(model, switch, model=name, native=_native)
    _replace(switch)


def _models(target: Any) -> dict[str, Any]:
    import torch

    if isinstance(target, torch.nn.Module):
        found = {"": plain_module(target)}
    else:
        found = {name: plain_module(getattr(target, name, None)) for name in _MODELS}
    return {
        name: model
        for name, model in found.items()
        if isinstance(model, torch.nn.Module)
        and any(type(part).__module__.split(".")[0] == "wan" for part in model.modules())
    }


def _original() -> Any:
    function = getattr(sys.modules[_ATTENTION], _FUNCTION)
    return getattr(function, "__wrapped__", function)


def _replace(switch: Switch) -> None:
    """Puts our function in place of theirs until the last switch is disabled."""
    with _lock:
        if not _users:
            original = _original()
            _rename(original, _function(original))
        _users.append(switch)
    switch.on_disable(functools.partial(_restore, switch))


def _restore(switch: Switch) -> None:
    with _lock:
        _users.remove(switch)
        if not _users:
            ours = getattr(sys.modules[_ATTENTION], _FUNCTION)
            _rename(ours, _original())


def _rename(old: Any, new: Any) -> None:
    """Every module of Wan that holds one function gets the other."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "wan" and getattr(module, _FUNCTION, None) is old:
            setattr(module, _FUNCTION, new)


def _function(original: Any) -> Any:
    import torch

    from ._dispatch import dispatch
    from ._modules import call_as_nobody, running_layer

    halves = (torch.float16, torch.bfloat16)

    @functools.wraps(original)
    def flash_attention(
        q: Any,
        k: Any,
        v: Any,
        q_lens: Any = None,
        k_lens: Any = None,
        dropout_p: float = 0.0,
        softmax_scale: float | None = None,
        q_scale: float | None = None,
        causal: bool = False,
        window_size: tuple[int, int] = _NO_WINDOW,
        deterministic: bool = False,
        dtype: Any = torch.bfloat16,
        version: int | None = None,
    ) -> Any:
        def native() -> Any:
            return call_as_nobody(
                original,
                q=q,
                k=k,
                v=v,
                q_lens=q_lens,
                k_lens=k_lens,
                dropout_p=dropout_p,
                softmax_scale=softmax_scale,
                q_scale=q_scale,
                causal=causal,
                window_size=window_size,
                deterministic=deterministic,
                dtype=dtype,
                version=version,
            )

        layer = running_layer()
        if layer is None:
            return native()
        reason = ""
        if q_lens is not None:
            reason = "lengths of queries"
        elif tuple(window_size) != _NO_WINDOW:
            reason = "window"
        values = v if v.dtype in halves else v.to(dtype)
        queries = q.to(values.dtype)
        if q_scale is not None:
            queries = queries * q_scale
        return dispatch(
            layer,
            queries,
            k.to(values.dtype),
            values,
            native=native,
            mask=None if k_lens is None else _mask(k_lens, k),
            dropout=dropout_p,
            causal=causal,
            scale=softmax_scale,
            bottom_right=True,
            refused=reason,
        ).to(q.dtype)

    return flash_attention


def _mask(lengths: Any, k: Any) -> Any:
    """The first keys of each item as a mask [B, 1, 1, Skv], without waiting for a device."""
    import torch

    lengths = lengths.to(k.device, non_blocking=True)
    return (torch.arange(k.shape[1], device=k.device) < lengths[:, None])[:, None, None, :]


def _native(
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
    """A call of a compiled function as torch computes it: Wan's own function needs packages that
    may not be there."""
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
