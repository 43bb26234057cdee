# SPDX-License-Identifier: BSD-3-Clause
"""diffusers: pipelines and models, and what stands on them (cache-dit).

A backend ``open_vc`` in the registry of its dispatcher. enable() sets the backend of the target's
processors one by one: model.set_attention_backend() would set that of the whole process too, and
its reset would not take it back.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from .._arrays import HEAD_DIMS, is_head_dim
from .._policy import Step
from .._switch import Switch
from ._enum import add_member
from ._framework import Framework
from .torch_sdpa import plain_module, run_in_mode, switch_module

FRAMEWORK = Framework(
    title="diffusers, and cache-dit on it",
    module="diffusers",
    distribution="diffusers",
    oldest="0.36",
    switch="open_vc_attn.enable(pipe)",
)

_DISPATCH = "diffusers.models.attention_dispatch"
REGISTER_AFTER = _DISPATCH
_MODEL = "diffusers.models.modeling_utils", "ModelMixin"
_PIPELINE = "diffusers.pipelines.pipeline_utils", "DiffusionPipeline"
_BACKEND = "_attention_backend"
_OTHER_COMPONENTS = ("vae", "text_encoder", "image_encoder", "vocoder", "safety_checker")
"""What their names say of components of a pipeline that are no denoisers."""
# Outer products of key padding, made anew in every block.
_OUTER_PRODUCT_MASKS = ("HunyuanVideo15Transformer3DModel",)
_OUTER_PRODUCT_PROCESSOR = "HunyuanVideo15AttnProcessor2_0"


def recognises(target: Any) -> bool:
    return _is(target, _PIPELINE) or _is(target, _MODEL)


def attach(target: Any, switch: Switch) -> None:
    from ._readiness import require_device

    FRAMEWORK.require_version(sys.modules["diffusers"].__version__)
    models = dict(_denoisers(target))
    if not models:
        raise ValueError(
            f"target: {type(target).__name__} without a denoising model; expected a pipeline with "
            "one. Pass the model itself."
        )
    models = _with_our_head_size(models)
    for device in _devices(target, models.values()):
        require_device(device)
    register()
    for name, model in models.items():
        _switch_model(name if len(models) > 1 else "", model, switch)
    source = _step_source(target)
    if source is not None:
        switch.follow_steps(source)


def register() -> None:
    """Makes the backend "open_vc" known: set_attention_backend() and attention_backend() take it.

    Without enable() it follows the environment (integrations/_default.py).
    """
    import diffusers.models.attention_dispatch as dispatcher

    FRAMEWORK.require_version(sys.modules["diffusers"].__version__)
    member = add_member(dispatcher.AttentionBackendName)
    registry = dispatcher._AttentionBackendRegistry
    if member not in registry._backends:
        from ._diffusers_backend import backend

        registry.register(member, constraints=[], supports_context_parallel=True)(backend)


def _is(target: Any, place: tuple[str, str]) -> bool:
    module = sys.modules.get(place[0])
    return module is not None and isinstance(target, getattr(module, place[1], ()))


def _denoisers(target: Any) -> Iterator[tuple[str, Any]]:
    if _is(target, _MODEL):
        yield "", target
        return
    for name, component in target.components.items():
        component = plain_module(component)
        if _is(component, _MODEL) and not name.startswith(_OTHER_COMPONENTS):
            yield name, component


def _devices(target: Any, models: Any) -> set[Any]:
    """Where the models will run: with offloading not where they are."""
    from ._readiness import device_of

    if _is(target, _PIPELINE):
        return {target._execution_device}
    return {device_of(model) for model in models}


def _attention_modules(model: Any) -> list[tuple[str, Any]]:
    """Modules whose processor calls the dispatcher, in order."""
    return [
        (name, module)
        for name, module in model.named_modules()
        if hasattr(getattr(module, "processor", None), _BACKEND)
    ]


def _head_size(module: Any) -> int | None:
    heads = getattr(module, "heads", None)
    inner = getattr(module, "inner_dim", None)
    return inner // heads if isinstance(heads, int) and isinstance(inner, int) and heads else None


def _head_sizes(model: Any) -> set[Any]:
    """Those of its modules, else that of its configuration; empty where neither tells."""
    sizes = {_head_size(module) for _, module in _attention_modules(model)} - {None}
    return sizes or {getattr(model.config, "attention_head_dim", None)} - {None}


def _with_our_head_size(models: dict[str, Any]) -> dict[str, Any]:
    """The models that can be computed in FP8."""
    sizes = {name: _head_sizes(model) for name, model in models.items()}
    found = {
        name: models[name]
        for name in models
        if not sizes[name] or any(is_head_dim(size) for size in sizes[name])
    }
    if found:
        return found
    all_sizes = {str(size) for name in models for size in sizes[name]}
    raise ValueError(
        f"target: heads of {', '.join(sorted(all_sizes))} channels; expected {HEAD_DIMS}. "
        "This model cannot be computed in FP8."
    )


def _switch_model(name: str, model: Any, switch: Switch) -> None:
    from ._modules import add_module, replace_switch

    modules = _attention_modules(model)
    if not modules:  # its processors call torch themselves
        switch_module(model, switch, model=name)
        return
    replace_switch(model)
    member = add_member(sys.modules[_DISPATCH].AttentionBackendName)
    previous: dict[int, Any] = {}
    counter = None
    if switch.options.recipe is not None:  # the mode costs time in every operation of torch
        from ._sdpa_mode import CountingMode

        counter = CountingMode()
        run_in_mode(model, counter, switch)
    for path, module in modules:
        processor = module.processor
        if id(processor) not in previous:
            previous[id(processor)] = _set_backend(processor, member, switch)
        layer = add_module(switch, module, path, model=name)
        layer.counter = counter
        layer.first_row_decides = type(model).__name__ in _OUTER_PRODUCT_MASKS
        layer.previous = previous[id(processor)]
        layer.native = functools.partial(_native, layer)
    if type(model).__name__ in _OUTER_PRODUCT_MASKS:
        _pass_key_masks_on(modules, switch)


def _pass_key_masks_on(modules: list[tuple[str, Any]], switch: Switch) -> None:
    """Puts our processor in the place of the one that makes masks of pairs of tokens."""
    from ._hunyuan_video15 import KeyMaskProcessor

    def restore(module: Any, ours: Any) -> None:
        if module.processor is ours:
            module.processor = ours.original

    for _, module in modules:
        if type(module.processor).__name__ == _OUTER_PRODUCT_PROCESSOR:
            module.processor = ours = KeyMaskProcessor(module.processor)
            switch.on_disable(functools.partial(restore, module, ours))


def _native(layer: Any, *args: Any, **kwargs: Any) -> Any:
    from ._diffusers_backend import native

    return native(layer, *args, **kwargs)


def _set_backend(processor: Any, member: Any, switch: Switch) -> Any:
    """Sets the backend of a processor until the switch is disabled; returns the one before."""
    was_set = _BACKEND in vars(processor)
    previous = getattr(processor, _BACKEND)
    if previous is member:  # chosen by name before; there is nothing else to go back to
        return None

    def undo() -> None:
        if getattr(processor, _BACKEND, None) is not member:
            return  # somebody has chosen another one meanwhile
        if was_set:
            setattr(processor, _BACKEND, previous)
        else:
            delattr(processor, _BACKEND)

    setattr(processor, _BACKEND, member)
    switch.on_disable(undo)
    return previous


def _step_source(target: Any) -> Callable[[], Step | None] | None:
    """The step as the scheduler of a pipeline tells it; None for what has no such scheduler."""
    if not hasattr(getattr(target, "scheduler", None), "step_index"):
        return None
    pipeline = weakref.ref(target)

    def step() -> Step | None:
        owner = pipeline()
        scheduler = None if owner is None else owner.scheduler
        timesteps = getattr(scheduler, "timesteps", None)
        if timesteps is None or not len(timesteps):
            return None
        # Where it begins in the middle of the schedule, as from an image, the steps count from there.
        begin = getattr(scheduler, "begin_index", None) or 0
        index = getattr(scheduler, "step_index", None)
        if index is None:  # in the first step
            index = begin
        sigmas = getattr(scheduler, "sigmas", None)
        noise = None if sigmas is None or index >= len(sigmas) else float(sigmas[index])
        return Step(index - begin, len(timesteps) - begin, noise)

    return step
