# SPDX-License-Identifier: BSD-3-Clause
"""Switching FP8 attention on in other people's models: enable(), and an adapter for each framework.

How an adapter is written
-------------------------
An adapter is a module of this package. It is imported when it is needed, and imports its framework
inside functions only. It has

``FRAMEWORK``
    a Framework: what the command ``frameworks`` shows, and the oldest version that is supported.
``recognises(target) -> bool``
    whether enable(target) is its business. It looks into ``sys.modules`` for the framework and
    imports nothing: who has such a target has imported it. Left out where there are no targets.
``attach(target, switch) -> None``
    makes the target's attention modules layers of the switch, and changes them so that their calls
    reach dispatch(). Everything is undone by callbacks of ``switch.on_disable``. It raises at once
    what can never work, with the way out. ``switch.follow_steps(source)`` where the framework tells
    the denoising step.
``register() -> None``
    makes names of backends known to the framework without switching anything on; idempotent.
    ``python -m open_vc_attn.run --with`` and entry points call it. Left out where there are none.
``REGISTER_AFTER``
    the module after whose import run calls register(). Left out: it is called at once.

enable() asks the adapters in the order of ADAPTERS; the last takes any torch.nn.Module.

The call. ``_dispatch.dispatch(layer, q, k, v, native=..., mask=, dropout=, causal=, scale=, return_lse=,
cross=, bottom_right=, refused=)`` takes [B, S, H, D] in any strides (transpose, never copy) and decides
everything: the table of what kernels take (_table.py), policy, masks (_masks.py), the count. It may
be traced by torch.compile. `native` is a function without arguments that does what the framework
would have done, in the layout of dispatch(). Results are [B, S, H, D], the LSE [B, H, S] in natural
logarithm.

The layer. `layer` is what ``switch.add_layer(name, model=..., native=...)`` returned;
``_modules.add_module(switch, module, name, ...)`` does the same for a torch module and installs hooks, after which
``_modules.running_layer()`` is that layer while the module runs. Its own `native` has the form of
``_native.sdpa``; it serves calls inside compiled functions. Names are those of named_modules():
from "blocks.7.attn1" the policy reads block 7.

Without enable(). In processes that a framework starts, where no line of the user runs, adapters take
``_default.default_switch()``, which environment variables configure, and add their layers to it
(``_default.default_layer(name)``).

An enum of a framework that is closed gets a member by ``_enum.add_member``.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from .._numerics import Budget, NumericsLike
from .._options import KeyOrder
from .._policy import Policy, as_policy
from .._recipe import Recipe
from .._switch import Options, Switch
from ._framework import Framework

__all__ = ["ADAPTERS", "Framework", "enable"]

ADAPTERS: tuple[str, ...] = ("wan", "comfyui", "ltx", "diffusers", "torch_sdpa")
"""Adapters with targets, in the order in which enable() asks them."""

_COMPILED = "_orig_mod"
"""Where torch.compile() keeps the module that it wraps."""


def enable(
    target: Any,
    *,
    policy: Policy | None = None,
    budget: Budget | None = None,
    numerics: NumericsLike = None,
    recipe: Recipe | None = None,
    key_order: KeyOrder = "mid_window",
    otherwise: Any = "native",
    masks: str = "trim",
) -> Switch:
    """Lets the attention of a model run in FP8.

        switch = open_vc_attn.enable(pipe)
        ...
        print(switch.report())
        switch.disable()

    Nothing but the target changes: no other model, no function of torch, no setting of a framework.
    A call that the kernels do not take, or that the policy keeps, is served as before.
    docs/integrations.md lists frameworks, and what to do when a report surprises.

    Args:
        target: a pipeline of diffusers, a ModelPatcher of ComfyUI, a model of a supported
            framework, any torch.nn.Module that calls scaled_dot_product_attention, or a list of
            them.
        policy: where FP8 is allowed; everywhere in long self-attention by default.
        budget, numerics, key_order: as for attention().
        recipe: numeric options of each layer and noise level. Its layer n is the n-th attention
            call of a forward pass, as capture() counts; layers that it does not have are not
            computed in FP8, nor are compiled functions, which do not count.
        otherwise: what serves the other calls. "native": what served them before. "error": the
            same for those that the policy keeps, an error for those that FP8 cannot serve. Or a
            function (q, k, v, *, mask, dropout, causal, scale, return_lse) of [B, S, H, D].
        masks: "trim" computes masks that hide keys without those keys, which is exact; a query that
            sees none gives 0. "refuse" leaves all calls with a mask to what served them before.

    Returns:
        The switch, which also is a context manager. A model that is switched already gets the new
        switch instead of the old one.

    Raises:
        TypeError: nothing that can be switched, or an argument of a wrong type.
        ValueError: an argument has the wrong value, or the target never calls FP8 attention.
        NotImplementedError: this build, the target's device or the framework's version.
    """
    options = Options(budget, numerics, recipe, key_order, otherwise, masks)
    switch = Switch(as_policy(policy), options)
    targets = list(target) if isinstance(target, (list, tuple)) else [target]
    if not targets:
        raise ValueError("target: an empty list; expected at least one model. Pass a model.")
    targets = [getattr(one, _COMPILED, one) for one in targets]
    chosen = [(_adapter_of(one), one) for one in targets]
    try:
        for adapter, one in chosen:
            adapter.attach(one, switch)
        switch.require_steps(switch.policy)
        switch.require_noise()
    except BaseException:
        switch.disable()
        raise
    return switch


def adapter(name: str) -> Any:
    """An adapter by its name."""
    return importlib.import_module(f"{__name__}.{name}")


def _adapter_of(target: Any) -> Any:
    if sys.modules.get("torch") is not None:
        for name in ADAPTERS:
            found = adapter(name)
            if found.recognises(target):
                return found
    raise TypeError(
        f"target: {type(target).__name__}; expected a pipeline of diffusers, a torch.nn.Module or a "
        "list of them. Pass the object whose attention is to run in FP8."
    )
