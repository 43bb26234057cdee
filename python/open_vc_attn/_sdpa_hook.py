# SPDX-License-Identifier: BSD-3-Clause
"""How a recording sees the attention calls of a torch model. Imports torch.

A TorchFunctionMode sees every call of the thread, however the caller imported the function, and
nothing global is patched.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from types import FunctionType
from typing import Any

import torch
from torch.nn.functional import multi_head_attention_forward, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from ._capture_file import is_softmax_scale
from ._torch_state import unreadable

_HEAD_AXIS = -3
_SEQUENCE_AXIS = -2


class SdpaHook(TorchFunctionMode):
    """Passes the arguments of every scaled_dot_product_attention call to `see` first."""

    def __init__(self, see: Callable[..., None]) -> None:
        super().__init__()
        self._pass_on = see

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is scaled_dot_product_attention:
            self._see(*args, **kwargs)
        elif func is multi_head_attention_forward:
            # The one function of torch's that calls attention and is handled itself: the mode is
            # off meanwhile.
            with self:
                return _mha(*args, **kwargs)
        return func(*args, **kwargs)

    def _see(
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> None:
        obstacle = _unreadable(q=query, k=key, v=value)
        if obstacle:
            self._pass_on(
                query, key, value, causal=False, softmax_scale=None, masked=False, obstacle=obstacle
            )
            return
        if enable_gqa:
            groups = query.shape[_HEAD_AXIS] // key.shape[_HEAD_AXIS]
            key, value = (x.repeat_interleave(groups, _HEAD_AXIS) for x in (key, value))
        self._pass_on(
            query,
            key,
            value,
            causal=bool(is_causal),
            softmax_scale=scale,
            masked=attn_mask is not None,
            obstacle=_obstacle(query, key, is_causal, scale),
        )


def _without_handling(func: FunctionType) -> FunctionType:
    """A function of torch's that does not hand itself to the active mode first, which would call
    it for ever."""
    names = {name: _nothing for name in func.__globals__ if name.startswith("has_torch_function")}
    copy = FunctionType(
        func.__code__, func.__globals__ | names, func.__name__, func.__defaults__, func.__closure__
    )
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy


def _nothing(*_: Any) -> bool:
    return False


_mha = _without_handling(multi_head_attention_forward)


def _unreadable(**tensors: Any) -> str:
    """Why the numbers of one of the tensors cannot be stored; empty if all can."""
    for name, tensor in tensors.items():
        obstacle = unreadable(tensor)
        if obstacle is not None:
            return obstacle.text(name)
    return ""


def _obstacle(query: Any, key: Any, is_causal: bool, scale: float | None) -> str:
    """Why attention() cannot compute what this call does, masks aside; empty if it can."""
    queries, keys = query.shape[_SEQUENCE_AXIS], key.shape[_SEQUENCE_AXIS]
    if is_causal and queries != keys:
        # The two agree on square problems only.
        return (
            f"is_causal with {queries} queries and {keys} keys; torch aligns the diagonal with "
            "the first query and key, attention() with the last"
        )
    if scale is not None and not is_softmax_scale(float(scale)):
        return f"scale={scale!r} is not above 0 and finite in float32"
    return ""


def eager() -> AbstractContextManager[Any]:
    """While it lasts, compiled functions run as they were written, where modes see their calls."""
    set_stance = getattr(torch.compiler, "set_stance", None)
    return set_stance("force_eager") if set_stance else nullcontext()


def follow(
    module: torch.nn.Module,
    hook: SdpaHook,
    next_step: Callable[[], None],
    path: list[str],
    stack: ExitStack,
) -> None:
    """Records while `module` runs, one step per call, and keeps `path` at the running submodule.

    `stack` gets what undoes it.
    """

    def start(*_: Any) -> None:
        next_step()
        hook.__enter__()

    def stop(*_: Any) -> None:
        hook.__exit__(None, None, None)

    def enter(name: str) -> Callable[..., None]:
        return lambda *_: path.append(name)

    def leave(*_: Any) -> None:
        path.pop()

    for name, part in module.named_modules():
        if not name:
            continue
        stack.callback(part.register_forward_pre_hook(enter(name)).remove)
        stack.callback(part.register_forward_hook(leave, always_call=True).remove)
    stack.callback(module.register_forward_pre_hook(start).remove)
    stack.callback(module.register_forward_hook(stop, always_call=True).remove)
