# SPDX-License-Identifier: BSD-3-Clause
"""Any torch.nn.Module that calls scaled_dot_product_attention.

A torch function mode sees the calls of the module while it runs, and nobody else's: rebinding
torch's function would reach VAEs, text encoders and other models of the process too.
"""

from __future__ import annotations

import sys
from typing import Any

from .._switch import Switch
from ._framework import Framework

FRAMEWORK = Framework(
    title="any torch.nn.Module on scaled_dot_product_attention",
    module="torch",
    distribution="torch",
    oldest="2.4",
    switch="open_vc_attn.enable(model)",
)
_WRAPPER = "_orig_mod"  # of torch.compile


def recognises(target: Any) -> bool:
    return isinstance(target, sys.modules["torch"].nn.Module)


def attach(target: Any, switch: Switch) -> None:
    import torch

    from ._readiness import device_of, require_device

    FRAMEWORK.require_version(torch.__version__)
    require_device(device_of(target))
    switch_module(target, switch)


def plain_module(module: Any) -> Any:
    """The module that torch.compile() wraps."""
    return getattr(module, _WRAPPER, module)


def switch_module(root: Any, switch: Switch, model: str = "", native: Any = None) -> None:
    """Makes the scaled_dot_product_attention calls of a module those of the switch.

    `native` as for Switch.add_layer().
    """
    from ._modules import add_module, replace_switch
    from ._sdpa_mode import SwitchMode

    replace_switch(root)
    run_in_mode(root, SwitchMode(), switch)
    for name, module in root.named_modules():
        if _may_attend(module) or module is root:
            add_module(switch, module, plain_name(name), model=model, native=native)


def run_in_mode(root: Any, mode: Any, switch: Switch) -> None:
    """A mode of _sdpa_mode.py is active while a module runs."""

    def start(*_: Any) -> None:
        mode.start()
        mode.__enter__()

    def stop(*_: Any) -> None:
        mode.__exit__(None, None, None)

    switch.on_disable(root.register_forward_pre_hook(start).remove)
    switch.on_disable(root.register_forward_hook(stop, always_call=True).remove)


def _may_attend(module: Any) -> bool:
    """Whether a module may call attention itself: all but torch's own, one of them aside."""
    import torch

    return isinstance(module, torch.nn.MultiheadAttention) or not type(
        module
    ).__module__.startswith("torch.nn.")


def plain_name(name: str) -> str:
    return ".".join(part for part in name.split(".") if part != _WRAPPER)
