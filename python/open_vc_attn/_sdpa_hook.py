# SPDX-License-Identifier: BSD-3-Clause
"""How a recording sees the attention calls of a torch model. Imports torch.

A TorchFunctionMode sees every call of the thread, however the caller imported the function, and
nothing global is patched.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

_HEAD_AXIS = -3


class SdpaHook(TorchFunctionMode):
    """Passes the arguments of every scaled_dot_product_attention call to `record` first."""

    def __init__(self, record: Callable[..., None]) -> None:
        super().__init__()
        self._record = record

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is scaled_dot_product_attention:
            self._see(*args, **kwargs)
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
        if enable_gqa:
            groups = query.shape[_HEAD_AXIS] // key.shape[_HEAD_AXIS]
            key, value = (x.repeat_interleave(groups, _HEAD_AXIS) for x in (key, value))
        self._record(
            query, key, value, causal=is_causal, softmax_scale=scale, masked=attn_mask is not None
        )


def eager() -> AbstractContextManager[Any]:
    """While it lasts, compiled functions run as they were written, where modes see their calls."""
    set_stance = getattr(torch.compiler, "set_stance", None)
    return set_stance("force_eager") if set_stance else nullcontext()


def follow(module: torch.nn.Module, recording: Any, path: list[str], stack: ExitStack) -> None:
    """Records while `module` runs, one step per call, and keeps `path` at the running submodule.

    `stack` gets what undoes it.
    """
    hook = SdpaHook(recording.record)

    def start(*_: Any) -> None:
        recording.next_step()
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
