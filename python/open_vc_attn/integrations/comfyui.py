# SPDX-License-Identifier: BSD-3-Clause
"""ComfyUI: a node, and enable() of a ModelPatcher.

Every attention function of ComfyUI asks ``transformer_options["optimized_attention_override"]``
first. A switched ModelPatcher has ours there, and a wrapper of its model calls, which knows the
step and puts the layers on the modules. The modules themselves belong to all clones of the
ModelPatcher: they are what they were as soon as the model call ends.

The override that was there before, of another node, serves what FP8 does not. A node behind ours
that sets the override takes our place.

``open-vc-attn comfyui install FOLDER`` installs the node (comfyui_nodes.py).
"""

from __future__ import annotations

import sys
import weakref
from typing import Any

from .._arrays import HEAD_DIMS, is_head_dim
from .._switch import Switch
from ._framework import Framework

FRAMEWORK = Framework(
    title="ComfyUI",
    module="comfy",
    distribution="",
    oldest="0.3.60",
    switch='open-vc-attn comfyui install FOLDER, then the node "Open-VC Attention"',
)
REGISTER_AFTER = "comfy.ldm.modules.attention"

_ATTENTION = "comfy.ldm.modules.attention"
_PATCHER = "comfy.model_patcher"
_OVERRIDE = "optimized_attention_override"
_KEY = "open_vc"
_APPLY_MODEL = "apply_model"


def recognises(target: Any) -> bool:
    module = sys.modules.get(_PATCHER)
    return module is not None and isinstance(target, getattr(module, "ModelPatcher", ()))


def attach(target: Any, switch: Switch) -> None:
    from ._comfyui_attention import ModelCalls, override, plain_modules
    from ._operator import token_of
    from ._readiness import require_device

    version = getattr(sys.modules.get("comfyui_version"), "__version__", None)
    if version is not None:
        FRAMEWORK.require_version(version)
    root = target.model.diffusion_model
    _require_head_size(root)
    require_device(target.load_device)
    detach(target)
    options = target.model_options["transformer_options"]
    previous = options.get(_OVERRIDE)
    calls = ModelCalls(switch)
    for name, _ in plain_modules(root):
        layer = switch.add_layer(name, native=calls.native(previous))
        layer.token = token_of(layer)
        calls.layers[name] = layer
    ours = override(calls, previous)
    ours.open_vc_switch = switch
    ours.open_vc_previous = previous
    ours.open_vc_owner = weakref.ref(target)
    options[_OVERRIDE] = ours
    target.add_wrapper_with_key(_APPLY_MODEL, _KEY, calls)
    switch.follow_steps(calls.step)
    owner = weakref.ref(target)

    def undo() -> None:
        patcher = owner()
        if patcher is not None:
            _restore(patcher, ours)

    switch.on_disable(undo)


def switch_of_model(target: Any) -> Switch | None:
    """The switch that a ModelPatcher or one that it was cloned from got from enable()."""
    return getattr(_current(target), "open_vc_switch", None)


def detach(target: Any) -> None:
    """Takes a switch off a ModelPatcher: its own, which is disabled, or that of its original."""
    ours = _current(target)
    switch = getattr(ours, "open_vc_switch", None)
    if switch is None:
        return
    if ours.open_vc_owner() is target and switch.enabled:
        switch.disable()
    _restore(target, ours)


def register() -> None:
    """Makes "open_vc" one of the attention functions that other nodes offer by name.

    It follows the environment (integrations/_default.py).
    """
    import comfy.ldm.modules.attention as attention

    from ._comfyui_attention import registered

    if _KEY not in attention.REGISTERED_ATTENTION_FUNCTIONS:
        attention.register_attention_function(_KEY, registered)


def _current(target: Any) -> Any:
    return target.model_options["transformer_options"].get(_OVERRIDE)


def _restore(target: Any, ours: Any) -> None:
    options = target.model_options["transformer_options"]
    if options.get(_OVERRIDE) is ours:  # else somebody has set another one meanwhile
        if ours.open_vc_previous is None:
            del options[_OVERRIDE]
        else:
            options[_OVERRIDE] = ours.open_vc_previous
    wrappers = target.wrappers.get(_APPLY_MODEL, {}).get(_KEY, [])
    wrappers[:] = [x for x in wrappers if x.switch is not ours.open_vc_switch]


def _require_head_size(root: Any) -> None:
    sizes = set()
    for module in root.modules():
        if "attention" in type(module).__name__.lower():
            sizes |= {getattr(module, name, None) for name in ("head_dim", "dim_head")}
    sizes = {size for size in sizes if isinstance(size, int)}
    if sizes and not any(is_head_dim(size) for size in sizes):
        raise ValueError(
            f"target: {type(root).__name__} has heads of {', '.join(map(str, sorted(sizes)))} "
            f"channels; expected {HEAD_DIMS}. This model cannot be computed in FP8."
        )
