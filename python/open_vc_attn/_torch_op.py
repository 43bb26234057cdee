# SPDX-License-Identifier: BSD-3-Clause
"""The torch operators ``open_vc_attn::attention`` and ``open_vc_attn::attention_with_lse``.

They are functional: nothing is mutated, results are fresh and contiguous. Importing this module
registers them, which happens with the first torch tensor that the package sees. The import is the
registration so that it also works while torch.compile traces that first call.

torch's dispatcher takes longer than the rest of a short call, so attention() leaves the operators
out where nothing of torch would see the call (TorchArrays.can_skip_dispatcher).
"""

from __future__ import annotations

from typing import Any

import torch

from ._call import lse_shape, run_attention
from ._native_options import cached_options, call_options
from ._numerics import NumericsLike, schema_arguments
from ._torch_arrays import TORCH

AVAILABLE = hasattr(torch.library, "register_fake")
"""Operators with fake kernels need torch 2.4; older versions call the library directly."""

_NAMESPACE = "open_vc_attn"
_ARGUMENTS = (
    "Tensor q, Tensor k, Tensor v, bool causal, float? softmax_scale, str key_order, "
    + schema_arguments()
)


def call(
    q: Any,
    k: Any,
    v: Any,
    causal: Any,
    softmax_scale: Any,
    return_lse: bool,
    key_order: Any,
    numerics: NumericsLike,
) -> Any:
    """attention() on checked torch tensors, through the operator."""
    operators = torch.ops.open_vc_attn
    operator = operators.attention_with_lse if return_lse else operators.attention
    return operator(q, k, v, *call_options(causal, softmax_scale, key_order, numerics))


def _attention(q: Any, k: Any, v: Any, *options: Any) -> Any:
    return run_attention(TORCH, q, k, v, cached_options(*options), False)[0]


def _attention_with_lse(q: Any, k: Any, v: Any, *options: Any) -> tuple[Any, Any]:
    return run_attention(TORCH, q, k, v, cached_options(*options), True)


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
