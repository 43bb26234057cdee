# SPDX-License-Identifier: BSD-3-Clause
"""The function behind the backend "open_vc" of diffusers. Imports diffusers.

All arguments of the dispatcher are named: it drops in silence those that a backend does not have,
masks among them.
"""

from __future__ import annotations

from typing import Any

import diffusers.models.attention_dispatch as dispatcher

from ._default import default_layer
from ._dispatch import dispatch
from ._enum import add_member
from ._hunyuan_video15 import outer_product
from ._modules import running_layer
from ._native import sdpa

_MEMBER = add_member(dispatcher.AttentionBackendName)
_NATIVE = dispatcher.AttentionBackendName.NATIVE
_DEFAULT = default_layer(model="diffusers")
"""Whose calls those are that no enable() has claimed."""


def backend(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    _parallel_config: Any = None,
) -> Any:
    """Attention of [B, S, H, D] as the dispatcher of diffusers calls it."""
    if _parallel_config is not None:
        return dispatcher._templated_context_parallel_attention(
            query,
            key,
            value,
            attn_mask,
            dropout_p,
            is_causal,
            scale,
            enable_gqa,
            return_lse,
            forward_op=_forward_op,
            backward_op=_backward_op,
            _parallel_config=_parallel_config,
        )
    layer = running_layer() or _DEFAULT
    counter = layer.counter
    ordinal = None if counter is None else counter.next_number()

    def served_before() -> Any:
        mask = outer_product(attn_mask) if _is_one_row(layer, attn_mask) else attn_mask
        if return_lse:
            return _sdpa_like_dispatcher(query, key, value, mask, dropout_p, is_causal, scale, True)
        return dispatcher.dispatch_attention_fn(
            query,
            key,
            value,
            mask,
            dropout_p,
            is_causal,
            scale,
            enable_gqa,
            backend=_served_before(getattr(layer, "previous", None)),
        )

    def otherwise() -> Any:
        return served_before() if counter is None else counter.call_uncounted(served_before)

    out = dispatch(
        layer,
        query,
        key,
        value,
        native=otherwise,
        mask=_as_sdpa_mask(attn_mask, query, key),
        dropout=dropout_p,
        causal=is_causal,
        scale=scale,
        return_lse=return_lse,
        grouped=enable_gqa,
        ordinal=ordinal,
    )
    return (out[0], out[1].transpose(1, 2)) if return_lse else out


def native(
    layer: Any,
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Any = None,
    dropout: float = 0.0,
    causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
) -> Any:
    """A call of a compiled function as the processor's backend before serves it."""
    if _is_one_row(layer, mask):
        mask = outer_product(mask)
    if return_lse:
        return sdpa(
            q, k, v, mask=mask, dropout=dropout, causal=causal, scale=scale, return_lse=True
        )
    grouped = q.shape[2] != k.shape[2]
    return dispatcher.dispatch_attention_fn(
        q, k, v, mask, dropout, causal, scale, grouped, backend=_served_before(layer.previous)
    )


def _is_one_row(layer: Any, mask: Any) -> bool:
    """Whether _hunyuan_video15.py gave a mask of keys where diffusers makes one of pairs."""
    return layer.first_row_decides and mask is not None and mask.dim() == 4 and mask.shape[2] == 1


def _served_before(previous: Any) -> Any:
    """A backend that is not ours: the processor's own, else that of the process."""
    if previous is not None:
        return previous
    active = dispatcher._AttentionBackendRegistry._active_backend
    return _NATIVE if active == _MEMBER else active


def _as_sdpa_mask(mask: Any, query: Any, key: Any) -> Any:
    """Two axes are [B, Skv] here, where torch reads [Sq, Skv]."""
    if (
        mask is not None
        and mask.dim() == 2
        and (mask.shape[0], mask.shape[1]) == (query.shape[0], key.shape[1])
    ):
        return mask[:, None, None, :]
    return mask


def _sdpa_like_dispatcher(
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    dropout: float,
    causal: bool,
    scale: float | None,
    return_lse: bool,
) -> Any:
    return sdpa(
        query,
        key,
        value,
        mask=_as_sdpa_mask(mask, query, key),
        dropout=dropout,
        causal=causal,
        scale=scale,
        return_lse=return_lse,
    )


def _forward_op(
    ctx: Any,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    _save_ctx: bool = True,
    _parallel_config: Any = None,
) -> Any:
    """A block of a ring, or the heads of one process, as the templates of diffusers call it.

    The LSE is [B, S, H] there.
    """
    ring = 1 if _parallel_config is None else _parallel_config.context_parallel_config.ring_degree
    out = dispatch(
        running_layer() or _DEFAULT,
        query,
        key,
        value,
        native=lambda: _sdpa_like_dispatcher(
            query, key, value, attn_mask, dropout_p, is_causal, scale, return_lse
        ),
        mask=_as_sdpa_mask(attn_mask, query, key),
        dropout=dropout_p,
        causal=is_causal,
        scale=scale,
        return_lse=return_lse,
        grouped=enable_gqa,
        shards=ring or 1,
    )
    return (out[0], out[1].transpose(1, 2)) if return_lse else out


def _backward_op(*_: Any) -> Any:
    raise NotImplementedError(
        "open_vc: a gradient is asked for; expected none, FP8 attention has no backward. Use "
        "another attention backend to train."
    )
