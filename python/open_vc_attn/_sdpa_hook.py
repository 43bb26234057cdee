# SPDX-License-Identifier: BSD-3-Clause
"""How a recording sees the attention calls of a torch model. Imports torch.

A TorchFunctionMode sees every call of the thread, however the caller imported the function, and
nothing global is patched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import FunctionType
from typing import Any

import torch
from torch.nn.functional import multi_head_attention_forward, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from ._options import SCALES, is_softmax_scale
from ._torch_state import unreadable

_HEAD_AXIS = -3
_SEQUENCE_AXIS = -2
_LEAST_RANK = 2  # [S, D]
_STORED_TYPES = (torch.bfloat16, torch.float16, torch.float32)


class SdpaMode(TorchFunctionMode):
    """Hands every scaled_dot_product_attention call to attend()."""

    def attend(self, *args: Any, **kwargs: Any) -> Any:
        """What becomes of a call; here nothing else than without the mode."""
        return scaled_dot_product_attention(*args, **kwargs)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is scaled_dot_product_attention:
            return self.attend(*args, **kwargs)
        if func is multi_head_attention_forward:
            # The one function of torch's that calls attention and is handled itself: the mode is
            # off meanwhile.
            with self:
                return _mha(*args, **kwargs)
        return func(*args, **kwargs)


class SdpaHook(SdpaMode):
    """Passes the arguments of every scaled_dot_product_attention call to `see` first."""

    def __init__(self, see: Callable[..., None]) -> None:
        super().__init__()
        self._pass_on = see

    def attend(self, *args: Any, **kwargs: Any) -> Any:
        self._see(*args, **kwargs)
        return scaled_dot_product_attention(*args, **kwargs)

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
        with untraced():
            obstacle = operand_obstacle(q=query, k=key, v=value)
            if obstacle:
                self._pass_on(
                    query,
                    key,
                    value,
                    causal=False,
                    softmax_scale=None,
                    masked=False,
                    obstacle=str(obstacle),
                )
                return
            if enable_gqa:
                key, value = (_with_heads_of(query, x) for x in (key, value))
            self._pass_on(
                *_broadcast(query, key, value),
                causal=bool(is_causal),
                softmax_scale=scale,
                masked=attn_mask is not None,
                dropout=float(dropout_p),
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


def operand_obstacle(**tensors: Any) -> Exception | None:
    """Why the numbers of the tensors cannot become a file that load_capture() reads."""
    for name, tensor in tensors.items():
        obstacle = unreadable(tensor)
        if obstacle is not None:
            return ValueError(obstacle.text(name))
        if tensor.dtype not in _STORED_TYPES:
            return TypeError(
                f"{name}: element type {tensor.dtype}; expected {', '.join(map(str, _STORED_TYPES))}, "
                f"which attention reads. Use {name}.to(torch.float32), or run the model in one of them."
            )
        if tensor.dim() < _LEAST_RANK:
            return ValueError(
                f"{name}: shape {[*tensor.shape]}; expected [B, H, S, D], with at least the last "
                f"two. Use {name}.unsqueeze(0) for what is missing."
            )
    types = [str(tensor.dtype) for tensor in tensors.values()]
    if len({*types}) > 1:
        return TypeError(
            f"{', '.join(tensors)}: element types {', '.join(types)}; expected one for all three. "
            "Convert them to one type."
        )
    return None


def _with_heads_of(query: Any, x: Any) -> Any:
    """Keys or values with their heads repeated for the queries of a group."""
    if min(x.dim(), query.dim()) < -_HEAD_AXIS or not x.shape[_HEAD_AXIS]:
        return x  # torch refuses the call
    return x.repeat_interleave(query.shape[_HEAD_AXIS] // x.shape[_HEAD_AXIS], _HEAD_AXIS)


def _broadcast(*tensors: Any) -> tuple[Any, ...]:
    """Tensors with the axes before [S, D] that they have together, as torch computes them."""
    try:
        outer = torch.broadcast_shapes(*[x.shape[:_SEQUENCE_AXIS] for x in tensors])
    except RuntimeError:  # torch refuses the call
        return tensors
    return tuple([x.expand(*outer, *x.shape[_SEQUENCE_AXIS:]) for x in tensors])


@contextmanager
def untraced() -> Iterator[None]:
    """While it lasts, torch.jit.trace does not see what is done: sizes are ints, and what recording
    a call does to its tensors is no part of the model."""
    state = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)
    try:
        yield
    finally:
        torch._C._set_tracing_state(state)


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
        return f"scale={scale!r} is not within {SCALES}"
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
