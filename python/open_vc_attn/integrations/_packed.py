# SPDX-License-Identifier: BSD-3-Clause
"""Packed sequences: one call for each. Imports torch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .._switch import Layer
from ._dispatch import dispatch
from ._serve import Call, Native, without_fp8

_MOST_SEQUENCES = 64
"""With more, one call of a function that takes them all is faster."""


def attend_packed(
    layer: Layer,
    q: Any,
    k: Any,
    v: Any,
    *,
    bounds: Sequence[int] | None,
    used: int | None,
    longest: int,
    causal: bool,
    scale: float | None,
    dropout: float,
    native: Native,
    native_of_one: Callable[..., Any],
) -> Any:
    """Attention of sequences that follow each other in [T, H, D].

    Args:
        bounds: where they begin and end, on the host.
        used: where the only sequence ends behind which there is padding; the output of that is 0.
        longest: tokens of the longest.
        native: serves all of them, [T, H, D].
        native_of_one: serves one, from [1, S, H, D].
    """

    def whole(reason: str, may_fail: bool = True) -> Any:
        call = Call(q[None], k[None], v[None], None, causal, scale, False, False)
        return without_fp8(
            layer, call, reason, lambda: native()[None], may_fail=may_fail, dropout=dropout
        )[0]

    if torch.compiler.is_compiling():
        one = [x[None] for x in (q, k, v)]
        reason = "packed sequences in a compiled function"
        return dispatch(layer, *one, native=lambda: native()[None], refused=reason)[0]
    if longest < max(layer.switch.policy.min_keys, layer.switch.policy.min_queries):
        return whole("policy: short packed sequences", may_fail=False)
    if bounds is None:
        return whole("packed sequences without their lengths on the host")
    pairs = [(0, used)] if used is not None else list(itertools.pairwise(bounds))
    if len(pairs) > _MOST_SEQUENCES:
        return whole(f"more than {_MOST_SEQUENCES} packed sequences")
    out = q.new_zeros(q.shape)
    for start, end in pairs:
        if start == end:
            continue
        one = [x[None, start:end] for x in (q, k, v)]
        out[start:end] = dispatch(
            layer,
            *one,
            native=lambda one=one: native_of_one(*one),  # type: ignore[misc]
            dropout=dropout,
            causal=causal,
            scale=scale,
            bottom_right=True,
        )[0]
    return out
