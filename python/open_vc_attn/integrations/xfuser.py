# SPDX-License-Identifier: BSD-3-Clause
"""xDiT (xfuser): the attention backend ``open_vc``.

xDiT has no plugins: ``torchrun ... -m open_vc_attn.run --with xfuser -m xfuser.runner ...
--attention_backend open_vc``, or register() in a script. xDiT's own schedule of two backends is the
policy on steps (--use_hybrid_attn_schedule); the rest follows the environment.
"""

from __future__ import annotations

from typing import Any

from ._enum import add_member
from ._framework import Framework

FRAMEWORK = Framework(
    title="xDiT (xfuser)",
    module="xfuser",
    distribution="xfuser",
    oldest="0.7",
    switch="python -m open_vc_attn.run --with xfuser -m xfuser.runner ... --attention_backend open_vc",
)
REGISTER_AFTER = "xfuser.core.distributed.attention_backend"

_MASK = "attn_mask"
_INDICES = "indices_k"
"""Of the valid keys of all items of a batch, in place of a mask."""


def register() -> None:
    """Makes "open_vc" known to xDiT in this process."""
    import xfuser.core.distributed.attention_backend as backends

    member = add_member(backends.AttentionBackendType)
    if member not in backends.ATTENTION_FUNCTION_REGISTRY:
        backends.register_attention_function(member)(_function(backends))


def _function(backends: Any) -> Any:
    from ._default import default_layer
    from ._dispatch import dispatch
    from ._native import sdpa

    layer = default_layer(model="xfuser")

    def attention(
        query: Any,
        key: Any,
        value: Any,
        dropout_p: float,
        is_causal: bool,
        attention_kwargs: Any = None,
    ) -> Any:
        """Attention of [B, H, S, D], and the LSE [B, H, S], which xDiT's ring merges; None without
        a ring. As with torch's attention in xDiT, arguments of sparse backends have no effect."""
        arguments = attention_kwargs or {}
        mask = arguments.get(_MASK)
        if mask is None and arguments.get(_INDICES) is not None:
            mask = _mask(arguments[_INDICES], key)
        ring = backends.get_ring_parallel_world_size()
        q, k, v = (x.transpose(1, 2) for x in (query, key, value))
        out = dispatch(
            layer,
            q,
            k,
            v,
            native=lambda: sdpa(
                q, k, v, mask=mask, dropout=dropout_p, causal=is_causal, return_lse=ring > 1
            ),
            mask=mask,
            dropout=dropout_p,
            causal=is_causal,
            return_lse=ring > 1,
            shards=ring,
        )
        out, lse = out if ring > 1 else (out, None)
        return out.transpose(1, 2), lse

    return attention


def _mask(indices: Any, key: Any) -> Any:
    """Valid keys of [B * Skv] as a mask [B, 1, 1, Skv]."""
    batch, keys = key.shape[0], key.shape[2]
    import torch

    mask = key.new_zeros(batch * keys, dtype=torch.bool).index_fill_(0, indices, True)
    return mask.view(batch, 1, 1, keys)
