# SPDX-License-Identifier: BSD-3-Clause
"""torch's own attention in the layout of this package. Imports torch."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention


def sdpa(
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
    """scaled_dot_product_attention of [B, S, H, D].

    Args:
        q, k, v: fewer heads of k and v than of q are groups of queries.
        mask: as there, broadcast to [B, H, Sq, Skv].
        dropout: probability.
        causal: aligned to the top left, as torch does.
        scale: 1/sqrt(D) by default.
        return_lse: a pair of the output and the LSE [B, H, Sq], float32, natural logarithm.
    """
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    if return_lse:
        out, lse = _with_lse(q, k, v, mask, dropout, causal, scale)
        return out.transpose(1, 2), lse
    grouped = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
    out = scaled_dot_product_attention(q, k, v, mask, dropout, causal, scale=scale, **grouped)
    return out.transpose(1, 2)


def _with_lse(
    q: Any, k: Any, v: Any, mask: Any, dropout: float, causal: bool, scale: float | None
) -> tuple[Any, Any]:
    """Attention and LSE of [B, H, S, D] through the kernels that have it."""
    aten = torch.ops.aten
    if q.shape[1] != k.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    if mask is None and not dropout:
        if q.device.type == "cuda" and q.dtype != torch.float32:
            out, lse, *_ = aten._scaled_dot_product_flash_attention(
                q, k, v, 0.0, causal, False, scale=scale
            )
            return out, lse.float()
        if q.device.type == "cpu" and not causal:
            out, lse = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, scale=scale)
            return out, lse.float()
    if dropout:
        raise NotImplementedError(
            f"dropout: {dropout} beside the LSE; expected 0. Leave one of the two out."
        )
    return _by_hand(q, k, v, mask, causal, scale)


def _by_hand(
    q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None
) -> tuple[Any, Any]:
    scores = (q.float() @ k.float().mT) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        visible = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~visible, -torch.inf)
    if mask is not None:
        scores = (
            scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        )
    lse = scores.logsumexp(-1)
    top = lse.masked_fill(torch.isneginf(lse), 0.0)  # a query without keys gives zero, not NaN
    out = (scores - top.unsqueeze(-1)).exp() @ v.float()
    return out.to(q.dtype), lse
