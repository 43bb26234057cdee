# SPDX-License-Identifier: BSD-3-Clause
"""Attention calls of ComfyUI, and its model calls. Imports torch."""

from __future__ import annotations

import functools
import itertools
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

from .._policy import Step
from .._switch import Layer, Switch
from ._default import default_layer
from ._dispatch import dispatch
from ._modules import layers_in_place, running_layer
from ._native import sdpa
from .torch_sdpa import plain_name

_OPTIONS = "transformer_options"
_OPTIONS_POSITION = 5  # among the arguments of apply_model
_INSIDE = "_inside_attn_wrapper"
_UNDERSTOOD = {"scale", "enable_gqa", "low_precision_attention", _OPTIONS, _INSIDE}
"""Arguments that may stand beside those that all attention functions name."""
_HEADS_FIRST, _MERGED = 4, 3  # axes of [B, H, S, D] and [B, S, H * D]
_SAME_LEVEL = 1e-4
"""Relative difference of noise levels that are the same but for their element types."""
_OWN_MODULES = ("torch.", "comfy.ops.")
"""Where modules come from that never call attention."""
_DEFAULT = default_layer(model="comfyui")
"""Whose calls those are that no enable() has claimed."""


def plain_modules(root: Any) -> list[tuple[str, Any]]:
    """The modules that may call attention, by the names that they have without torch.compile()."""
    return [
        (plain_name(name), module)
        for name, module in root.named_modules()
        if not f"{type(module).__module__}.".startswith(_OWN_MODULES)
    ]


class ModelCalls:
    """Stands around the calls of a model: tells the step, and which layer is running."""

    def __init__(self, switch: Switch) -> None:
        self.switch = switch
        self.layers: dict[str, Layer] = {}
        self._running = threading.local()

    def __deepcopy__(self, _: Any) -> ModelCalls:
        return self  # clones of a model share its switch

    def __call__(self, executor: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.switch.enabled:
            return executor(*args, **kwargs)
        options = kwargs.get(_OPTIONS)
        if options is None and len(args) > _OPTIONS_POSITION:
            options = args[_OPTIONS_POSITION]
        modules = plain_modules(executor.class_obj.diffusion_model)
        pairs = [(x, self.layers[name]) for name, x in modules if name in self.layers]
        before = vars(self._running).copy()
        self._running.options, self._running.step = options or {}, None
        self._running.calls = itertools.count()
        try:
            with layers_in_place(pairs):
                return executor(*args, **kwargs)
        finally:
            vars(self._running).clear()
            vars(self._running).update(before)

    def step(self) -> Step | None:
        """The step of the model call that is running."""
        running = vars(self._running)
        if running.get("step") is None and "options" in running:
            running["step"] = _step(running["options"])
        return running.get("step")

    def layer(self) -> Layer:
        """The layer that is running; that of the whole model where a call came another way."""
        found = running_layer()
        return self.layers[""] if found is None or found.switch is not self.switch else found

    def next_number(self) -> int | None:
        """The number of an attention call within its model call, as in captures."""
        if torch.compiler.is_compiling() or "calls" not in vars(self._running):
            return None
        return next(self._running.calls)

    def native(self, previous: Any) -> Callable[..., Any]:
        """What serves calls inside compiled functions."""
        return functools.partial(_native, previous)


def override(calls: ModelCalls, previous: Any) -> Any:
    """The function that attention functions of ComfyUI call in their place."""

    def open_vc_attention(func: Any, *args: Any, **kwargs: Any) -> Any:
        before = func if previous is None else functools.partial(previous, func)
        return _attend(calls.layer(), calls.next_number(), before, *args, **kwargs)

    return open_vc_attention


def registered(*args: Any, **kwargs: Any) -> Any:
    """An attention function as ComfyUI has them by name."""
    return _attend(_DEFAULT, None, _optimized, *args, **{**kwargs, _INSIDE: True})


def _optimized(*args: Any, **kwargs: Any) -> Any:
    """The attention function that ComfyUI has chosen, or its user."""
    return sys.modules["comfy.ldm.modules.attention"].optimized_attention(*args, **kwargs)


def _attend(
    layer: Layer,
    ordinal: int | None,
    before: Callable[..., Any],
    q: Any,
    k: Any,
    v: Any,
    heads: int,
    mask: Any = None,
    attn_precision: Any = None,
    skip_reshape: bool = False,
    skip_output_reshape: bool = False,
    **others: Any,
) -> Any:
    def as_before() -> Any:
        return before(
            q,
            k,
            v,
            heads,
            mask=mask,
            attn_precision=attn_precision,
            skip_reshape=skip_reshape,
            skip_output_reshape=skip_output_reshape,
            **others,
        )

    axes = _HEADS_FIRST if skip_reshape else _MERGED
    if not q.dim() == k.dim() == v.dim() == axes:
        return dispatch(layer, q, k, v, native=as_before, refused=f"{q.dim()} axes")
    if skip_reshape:
        operands = [x.transpose(1, 2) for x in (q, k, v)]
    else:
        size = q.shape[-1] // heads
        operands = [x.unflatten(-1, (-1, size)) for x in (q, k, v)]

    def native() -> Any:
        out = as_before()
        return out.transpose(1, 2) if skip_output_reshape else out.unflatten(-1, (heads, -1))

    out = dispatch(
        layer,
        *operands,
        native=native,
        mask=_broadcast(mask),
        scale=others.get("scale"),
        grouped=bool(others.get("enable_gqa", False)),
        ordinal=ordinal,
        refused=_refused(attn_precision, others),
    )
    return out.transpose(1, 2) if skip_output_reshape else out.flatten(-2)


def _refused(attn_precision: Any, others: dict[str, Any]) -> str:
    if not others.get("low_precision_attention", True):
        return "low_precision_attention=False"
    if attn_precision is not None and attn_precision.itemsize > torch.bfloat16.itemsize:
        return f"attn_precision {attn_precision}"
    unknown = sorted(others.keys() - _UNDERSTOOD)
    return f"argument {unknown[0]}" if unknown else ""


def _broadcast(mask: Any) -> Any:
    """[Sq, Skv] and [B, Sq, Skv] are masks of all heads."""
    return mask.unsqueeze(1) if mask is not None and mask.dim() == _MERGED else mask


def _native(
    previous: Any,
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
    if dropout or causal or return_lse:  # attention functions of ComfyUI have no such arguments
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
    function = _optimized if previous is None else functools.partial(previous, _optimized)
    extra: dict[str, Any] = {} if scale is None else {"scale": scale}
    if q.shape[2] != k.shape[2]:
        extra["enable_gqa"] = True
    out = function(
        *(x.transpose(1, 2) for x in (q, k, v)),
        q.shape[2],
        mask=mask,
        skip_reshape=True,
        skip_output_reshape=True,
        **extra,
        **{_INSIDE: True},
    )
    return out.transpose(1, 2)


def _step(options: Any) -> Step | None:
    """The last step whose noise level is not behind the present one: samplers of higher order call
    the model between two levels, others go from no noise to much."""
    schedule, now = options.get("sample_sigmas"), options.get("sigmas")
    if schedule is None or now is None or len(schedule) < 2:
        return None
    noise, (*levels, last) = float(now.flatten()[0]), schedule.tolist()
    falling = levels[0] > last
    tolerance = _SAME_LEVEL * abs(noise)
    ahead = [(noise - level if falling else level - noise) <= tolerance for level in levels]
    index = max((i for i, reached in enumerate(ahead) if reached), default=0)
    return Step(index, len(levels), noise)
