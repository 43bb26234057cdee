# SPDX-License-Identifier: BSD-3-Clause
"""Packed sequences, which follow each other in [T, H, D]. Imports torch."""

from __future__ import annotations

from typing import Any

import torch

from .._switch import Layer
from ._dispatch import dispatch
from ._serve import Call, Native, serve_packed, without_fp8
from ._table import refusal

_MOST_PADDING = 8
"""Kernels have room for as many sequences of the longest: not for more than so many times what
there is."""


def attend_packed(
    layer: Layer | None,
    q: Any,
    k: Any,
    v: Any,
    *,
    boundaries: tuple[Any, Any],
    longest: tuple[int, int],
    causal: bool,
    scale: float | None,
    dropout: float,
    native: Native,
) -> Any:
    """Attention of packed sequences in one call. Behind the last there are zeros.

    Args:
        layer: whose call it is; None for nobody's, which `native` serves.
        boundaries: of queries and of keys, as attention_varlen() takes them.
        longest: tokens of the longest sequence of q, and of k. The policy sees the call of those.
        causal: aligned with the last query and key of each sequence.
        native: serves the call, [T, H, D].
    """
    if layer is None or not layer.switch.enabled:
        return native()
    one = [x[None] for x in (q, k, v)]
    if torch.compiler.is_compiling():
        reason = "packed sequences in a compiled function"
        return dispatch(layer, *one, native=lambda: native()[None], refused=reason)[0]
    cross = longest[0] != longest[1]
    call = Call(*one, None, causal, scale, False, cross)
    reason = refusal(
        *one, dropout=dropout, causal=causal, scale=scale, bottom_right=True
    ) or _memory_refusal(q, k, boundaries, longest)
    if reason:
        return without_fp8(layer, call, reason, lambda: native()[None], dropout=dropout)[0]
    return serve_packed(layer, call, boundaries, longest, native)


def _memory_refusal(q: Any, k: Any, boundaries: tuple[Any, Any], longest: tuple[int, int]) -> str:
    count = len(boundaries[0]) - 1
    if count * sum(longest) <= _MOST_PADDING * (len(q) + len(k)):
        return ""
    return "packed sequences of very unlike lengths"
