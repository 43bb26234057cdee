# SPDX-License-Identifier: BSD-3-Clause
"""The attention processor of HunyuanVideo-1.5 in diffusers, with a mask of keys alone.

The processor of diffusers makes a mask of all pairs of tokens anew in every block, gigabytes at full
length. This one passes on the mask [B, 1, 1, N] that it is made of. Rows of padded queries differ,
which nobody reads. Imports diffusers.
"""

from __future__ import annotations

from typing import Any

import torch
from diffusers.models.attention_dispatch import dispatch_attention_fn
from diffusers.models.embeddings import apply_rotary_emb
from torch.nn.functional import pad

_VIDEO = (("to_q", "norm_q"), ("to_k", "norm_k"), ("to_v", None))
_TEXT = (("add_q_proj", "norm_added_q"), ("add_k_proj", "norm_added_k"), ("add_v_proj", None))
"""Projections and norms of a stream of tokens."""


class KeyMaskProcessor:
    """Stands in for a processor, whose settings it shares."""

    def __init__(self, original: Any) -> None:
        self.original = original

    @property
    def _attention_backend(self) -> Any:
        return self.original._attention_backend

    @_attention_backend.setter
    def _attention_backend(self, backend: Any) -> None:
        self.original._attention_backend = backend

    @property
    def _parallel_config(self) -> Any:
        return self.original._parallel_config

    @_parallel_config.setter
    def _parallel_config(self, config: Any) -> None:
        self.original._parallel_config = config

    def __call__(
        self,
        attn: Any,
        hidden_states: Any,
        encoder_hidden_states: Any = None,
        attention_mask: Any = None,
        image_rotary_emb: Any = None,
    ) -> tuple[Any, Any]:
        if self._parallel_config is not None or attention_mask is None:
            # Tokens are spread over processes, and the mask with them.
            return self.original(
                attn,
                hidden_states,
                encoder_hidden_states=encoder_hidden_states,
                attention_mask=attention_mask,
                image_rotary_emb=image_rotary_emb,
            )
        operands = _stream(attn, hidden_states, _VIDEO)
        if image_rotary_emb is not None:
            q, k, v = operands
            rotated = [apply_rotary_emb(x, image_rotary_emb, sequence_dim=1) for x in (q, k)]
            operands = [*rotated, v]
        video = hidden_states.shape[1]
        if encoder_hidden_states is not None:
            text = _stream(attn, encoder_hidden_states, _TEXT)
            operands = [torch.cat(pair, dim=1) for pair in zip(operands, text, strict=True)]
        q, k, v = operands
        out = dispatch_attention_fn(
            q,
            k,
            v,
            attn_mask=_key_mask(attention_mask, q.shape[1]),
            backend=self._attention_backend,
            parallel_config=None,
        )
        out = out.flatten(2, 3).to(q.dtype)
        if encoder_hidden_states is None:
            return out, None
        hidden, encoded = out[:, :video], out[:, video:]
        if getattr(attn, "to_out", None) is not None:
            hidden = attn.to_out[1](attn.to_out[0](hidden))
        if getattr(attn, "to_add_out", None) is not None:
            encoded = attn.to_add_out(encoded)
        return hidden, encoded


def outer_product(mask: Any) -> Any:
    """The mask of pairs of tokens that diffusers makes of one of keys."""
    return mask & mask.transpose(-1, -2)


def _key_mask(text: Any, tokens: int) -> Any:
    """The mask of all tokens of a mask of the text behind the video."""
    return pad(text, (tokens - text.shape[1], 0), value=True).bool()[:, None, None]


def _stream(attn: Any, x: Any, names: Any) -> list[Any]:
    """Q, K and V of a stream of tokens, [B, S, H, D]."""
    found = []
    for projection, norm in names:
        y = getattr(attn, projection)(x).unflatten(2, (attn.heads, -1))
        norm = None if norm is None else getattr(attn, norm)
        found.append(y if norm is None else norm(y))
    return found
