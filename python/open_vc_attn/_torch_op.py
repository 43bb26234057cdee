# SPDX-License-Identifier: BSD-3-Clause
"""The torch operators ``open_vc_attn::attention`` and ``open_vc_attn::attention_with_lse``.

They are functional: nothing is mutated, results are fresh and contiguous. Importing this module
registers them, which happens with the first torch tensor that the package sees. The import is the
registration so that it also works while torch.compile traces that first call.

torch's dispatcher takes longer than the rest of a short call, so attention() leaves the operators
out where nothing of torch would see the call (TorchArrays.can_skip_dispatcher).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from . import _openvc
from ._call import lse_shape, run_attention
from ._native_options import CACHED_OPTIONS, native_options
from ._options import KEY_ORDERS, Numerics, as_softmax_scale, require_bool, require_one_of
from ._torch_arrays import TORCH

AVAILABLE = hasattr(torch.library, "register_fake")
"""Operators with fake kernels need torch 2.4; older versions call the library directly."""

_NAMESPACE = "open_vc_attn"
_ARGUMENTS = (
    "Tensor q, Tensor k, Tensor v, bool causal, float? softmax_scale, str key_order, "
    "bool smooth_keys, str rotation, int max_extra_steps, float score_error_target, "
    "str tail_correction, bool centre_values, str value_scale"
)


def call(
    q: Any,
    k: Any,
    v: Any,
    causal: Any,
    softmax_scale: Any,
    return_lse: bool,
    key_order: Any,
    numerics: Numerics,
) -> Any:
    """attention() on checked torch tensors, through the operator."""
    operators = torch.ops.open_vc_attn
    operator = operators.attention_with_lse if return_lse else operators.attention
    return operator(
        q,
        k,
        v,
        require_bool("causal", causal),
        as_softmax_scale(softmax_scale),
        require_one_of("key_order", key_order, KEY_ORDERS),
        numerics.smooth_keys,
        numerics.rotation,
        numerics.max_extra_steps,
        float(numerics.score_error_target),
        numerics.tail_correction,
        numerics.centre_values,
        numerics.value_scale,
    )


@lru_cache(maxsize=CACHED_OPTIONS)
def _native_options(
    causal: bool, softmax_scale: float | None, key_order: str, *numerics: Any
) -> _openvc.AttentionOptions:
    return native_options(causal, softmax_scale, key_order, Numerics(*numerics))


def _attention(q: Any, k: Any, v: Any, *options: Any) -> Any:
    return run_attention(TORCH, q, k, v, _native_options(*options), False)[0]


def _attention_with_lse(q: Any, k: Any, v: Any, *options: Any) -> tuple[Any, Any]:
    return run_attention(TORCH, q, k, v, _native_options(*options), True)


def _fake_attention(q: Any, k: Any, v: Any, *options: Any) -> Any:
    return q.new_empty(q.shape)


def _fake_attention_with_lse(q: Any, k: Any, v: Any, *options: Any) -> tuple[Any, Any]:
    return q.new_empty(q.shape), q.new_empty(lse_shape(q.shape), dtype=torch.float32)


def _no_backward(*_: Any) -> Any:
    raise NotImplementedError(
        "FP8 attention has no backward: call it under torch.no_grad() or on detached tensors"
    )


def _register() -> torch.library.Library:
    library = torch.library.Library(_NAMESPACE, "DEF")
    # Inductor must not choose another layout of the inputs: the channel axis has to stay
    # contiguous.
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
    for name, results, kernel, fake in (
        ("attention", "Tensor", _attention, _fake_attention),
        ("attention_with_lse", "(Tensor, Tensor)", _attention_with_lse, _fake_attention_with_lse),
    ):
        library.define(f"{name}({_ARGUMENTS}) -> {results}", tags=tags)
        for device in ("CPU", "CUDA"):
            library.impl(name, kernel, device)
        torch.library.register_fake(f"{_NAMESPACE}::{name}", fake, lib=library)
        # Without this torch would treat the outputs as constants and drop gradients silently.
        torch.library.register_autograd(f"{_NAMESPACE}::{name}", _no_backward, lib=library)
    return library


# The operators live as long as this object.
_LIBRARY = _register() if AVAILABLE else None
