# SPDX-License-Identifier: BSD-3-Clause
"""Which calls the kernels take, from types and shapes alone: a compiler folds the answer.

Imports torch.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from .._arrays import LARGEST_HEAD_DIM, is_head_dim
from .._native_options import call_options
from .._options import is_softmax_scale
from .._torch_state import unusual_kind
from .._torch_support import support_by_shape

_RANK = 4  # [B, S, H, D]
_TYPES = (torch.bfloat16, torch.float16)
_ONE_TOKEN = (1, 1, LARGEST_HEAD_DIM)
_PACKED = (LARGEST_HEAD_DIM, LARGEST_HEAD_DIM, 1)


def refusal(
    q: Any,
    k: Any,
    v: Any,
    *,
    dropout: float = 0.0,
    causal: bool = False,
    scale: float | None = None,
    bottom_right: bool = False,
    grouped: bool = True,
) -> str:
    """Why FP8 attention does not serve a call of [B, S, H, D], masks aside; empty if it does.

    `bottom_right`: the caller aligns a causal mask with the last query and key, as the kernels do.
    `grouped`: heads of queries may share those of keys, in order.
    """
    if dropout > 0:
        return "dropout"
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return "a gradient is wanted"
    return (
        _kind_refusal(q, k, v)
        or _shape_refusal(q, k, v, grouped)
        or _option_refusal(q, k, causal, scale, bottom_right)
        or _strides_refusal(q, k, v)
        or device_refusal(q.device.type, q.device.index or 0)
    )


def _kind_refusal(q: Any, k: Any, v: Any) -> str:
    for x in (q, k, v):
        unusual = unusual_kind(x)
        if unusual is not None:
            return unusual.found
    if not q.dtype == k.dtype == v.dtype:
        return f"element types {q.dtype}, {k.dtype}, {v.dtype}"
    if q.dtype not in _TYPES:
        # Whoever computes in float32 wants its precision.
        return f"element type {q.dtype}"
    if not q.device == k.device == v.device:
        return "different devices"
    return ""


def _shape_refusal(q: Any, k: Any, v: Any, grouped: bool) -> str:
    if not q.dim() == k.dim() == v.dim() == _RANK:
        return f"{q.dim()} axes"
    if not is_head_dim(q.shape[-1]):
        return f"head size {q.shape[-1]}"
    if k.shape[-1] != q.shape[-1] or v.shape[-1] != q.shape[-1]:
        return f"head sizes {q.shape[-1]}, {k.shape[-1]}, {v.shape[-1]}"
    if not (q.numel() and k.numel()):
        return "no elements"
    heads, of_keys = q.shape[2], k.shape[2]
    if of_keys != v.shape[2] or (heads % of_keys if grouped else heads != of_keys):
        return f"{of_keys} heads of keys for {heads} of queries"
    if not q.shape[0] == k.shape[0] == v.shape[0] or k.shape[1] != v.shape[1]:
        return "shapes that differ"
    return ""


def _option_refusal(q: Any, k: Any, causal: bool, scale: float | None, bottom_right: bool) -> str:
    if causal and not bottom_right and q.shape[1] != k.shape[1]:
        return "causal from the top left, with unlike numbers of queries and keys"
    if scale is not None and not is_softmax_scale(scale):
        return f"scale {scale}"
    return ""


def _strides_refusal(q: Any, k: Any, v: Any) -> str:
    if any([x.stride(-1) != 1 for x in (q, k, v)]):
        return "channels that do not lie side by side"
    return ""


@torch.compiler.assume_constant_result
def device_refusal(kind: str, index: int) -> str:
    """Why no kernel runs on a device; empty if one does."""
    return _device_refusal(kind, index)


@functools.cache
def _device_refusal(kind: str, index: int) -> str:
    if kind not in ("cpu", "cuda"):
        return f"device {kind}"
    token = ("bfloat16", kind, index, _ONE_TOKEN, _PACKED)
    supported, reason = support_by_shape(
        token, token, token, call_options(False, None, "mid_window")
    )
    return "" if supported else str(reason)
