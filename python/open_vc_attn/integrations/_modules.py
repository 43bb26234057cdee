# SPDX-License-Identifier: BSD-3-Clause
"""Which layer of which switch is running: modules know their layer, hooks keep it at hand.

Imports torch.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from .._switch import Layer, Switch
from . import _operator

_ATTRIBUTE = "_open_vc_layer"


class _Running(threading.local):
    def __init__(self) -> None:
        self.layers: list[Any] = []


class _Traced:
    """The same while a compiler traces, which knows no threads."""

    def __init__(self) -> None:
        self.layers: list[Any] = []


_running = _Running()
_traced = _Traced()


def _layers() -> list[Any]:
    return _traced.layers if torch.compiler.is_compiling() else _running.layers


def running_layer() -> Layer | None:
    """The layer of the innermost module that is running and has one."""
    layers = _layers()
    return layers[-1] if layers else None


def call_as_nobody(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls a function whose attention is served as before, although a layer is running."""
    _layers().append(None)
    try:
        return function(*args, **kwargs)
    finally:
        _layers().pop()


def _enter(module: Any, _: Any) -> None:
    _layers().append(module._open_vc_layer)


def _leave(module: Any, *_: Any) -> None:
    layers = _layers()
    if layers:
        layers.pop()


# The id of the hooks, the same on all modules. Compilers guard on it: with those that torch counts
# up, they would compile each block of a model anew.
_HOOK = RemovableHandle(OrderedDict()).id


def _install(module: Any) -> None:
    module._forward_pre_hooks[_HOOK] = _enter
    module._forward_hooks[_HOOK] = _leave
    module._forward_hooks_always_called[_HOOK] = True


def _remove(module: Any) -> None:
    for hooks in (
        module._forward_pre_hooks,
        module._forward_hooks,
        module._forward_hooks_always_called,
    ):
        hooks.pop(_HOOK, None)


def layer_of(module: Any) -> Layer | None:
    """The layer that a module has."""
    return vars(module).get(_ATTRIBUTE)


def replace_switch(root: Any) -> None:
    """Disables the switches of a model, which another one is about to replace."""
    for module in root.modules():
        layer = layer_of(module)
        if layer is not None and layer.switch.enabled:
            layer.switch.disable()


def add_module(
    switch: Switch, module: Any, name: str, *, model: str = "", native: Any = None
) -> Layer:
    """Makes a module a layer of a switch: running_layer() is it while the module runs."""
    layer = switch.add_layer(name, model=model, native=native)
    layer.token = _operator.token_of(layer)
    setattr(module, _ATTRIBUTE, layer)
    _install(module)

    def undo() -> None:
        if layer_of(module) is layer:
            _remove(module)
            delattr(module, _ATTRIBUTE)

    switch.on_disable(undo)
    return layer


@contextmanager
def layers_in_place(pairs: Iterable[tuple[Any, Layer]]) -> Iterator[None]:
    """Modules have these layers while it lasts, and afterwards what they had before.

    For models whose modules several switched and unswitched users share.
    """
    pairs = list(pairs)
    before = [(module, layer_of(module)) for module, _ in pairs]
    try:
        for module, layer in pairs:
            setattr(module, _ATTRIBUTE, layer)
            _install(module)
        yield
    finally:
        for module, layer in before:
            if layer is not None:  # hooks go with it
                setattr(module, _ATTRIBUTE, layer)
            else:
                _remove(module)
                vars(module).pop(_ATTRIBUTE, None)
