# SPDX-License-Identifier: BSD-3-Clause
"""The torch operators ``open_vc_attn::switched`` and ``open_vc_attn::switched_with_lse``.

Compiled functions contain them where a switched model calls attention. The policy is asked inside,
at run time: it may change its mind from step to step, and nothing is compiled again. Switch and
layer arrive as a tensor of two numbers, because a compiler would make a constant of an int, and
compile every block of a model anew.

In a CUDA graph the choice is the one that was made when it was recorded.

Importing this module registers them. Imports torch.
"""

from __future__ import annotations

from typing import Any

import torch

from .._call import lse_shape
from .._switch import Layer, switch_of
from ._native import sdpa
from ._serve import Call, serve

_KEPT = "_open_vc_attn_switched_library"
_NAMESPACE = "open_vc_attn"
_ARGUMENTS = (
    "Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor token, bool causal, float? softmax_scale, "
    "bool cross, int shards"
)


def token_of(layer: Layer) -> Any:
    """Switch and layer as a tensor."""
    return torch.tensor([layer.switch.number, layer.number], dtype=torch.int64, device="cpu")


def call(layer: Layer, call: Call) -> Any:
    """A call as it enters a compiled function."""
    operators = torch.ops.open_vc_attn
    operator = operators.switched_with_lse if call.return_lse else operators.switched
    return operator(
        call.q,
        call.k,
        call.v,
        call.mask,
        layer.token,
        call.causal,
        call.scale,
        call.cross,
        call.shards,
    )


def _run(call: Call, token: Any) -> Any:
    number, index = token.tolist()
    switch = switch_of(number)
    layer = None if switch is None else switch.layers[index]
    native = sdpa if layer is None or layer.native is None else layer.native

    def otherwise() -> Any:
        return native(
            call.q,
            call.k,
            call.v,
            mask=call.mask,
            causal=call.causal,
            scale=call.scale,
            return_lse=call.return_lse,
        )

    return otherwise() if layer is None else serve(layer, call, otherwise)


def _switched(q, k, v, mask, token, causal, softmax_scale, cross, shards) -> Any:
    return _run(
        Call(q, k, v, mask, causal, softmax_scale, False, cross, None, shards), token
    ).contiguous()


def _switched_with_lse(q, k, v, mask, token, causal, softmax_scale, cross, shards) -> Any:
    out, lse = _run(Call(q, k, v, mask, causal, softmax_scale, True, cross, None, shards), token)
    return out.contiguous(), lse.contiguous()


def _fake_switched(q: Any, *_: Any) -> Any:
    return q.new_empty(q.shape)


def _fake_switched_with_lse(q: Any, *_: Any) -> Any:
    return q.new_empty(q.shape), q.new_empty(lse_shape(q.shape), dtype=torch.float32)


def _register() -> torch.library.Library:
    library = torch.library.Library(_NAMESPACE, "FRAGMENT")
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
    for name, results, kernel, fake in (
        ("switched", "Tensor", _switched, _fake_switched),
        ("switched_with_lse", "(Tensor, Tensor)", _switched_with_lse, _fake_switched_with_lse),
    ):
        library.define(f"{name}({_ARGUMENTS}) -> {results}", tags=tags)
        # The token is on the CPU whatever the device of the others.
        for device in ("CPU", "CUDA"):
            library.impl(name, kernel, device)
        torch.library.register_fake(f"{_NAMESPACE}::{name}", fake, lib=library)
    return library


_namespace = torch.ops.open_vc_attn
if _KEPT not in vars(_namespace):
    # torch keeps them as long as it lives: compiled models hold on to them.
    setattr(_namespace, _KEPT, _register())
