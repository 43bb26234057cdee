# SPDX-License-Identifier: BSD-3-Clause
"""Attention on checked operands of any framework: what attention() and the torch operators share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from . import _openvc
from ._arrays import ELEMENT_BYTES, LAYOUT, Arrays
from ._key_selection import select_keys
from ._sequences import Sequences, divide
from ._threads import get_num_threads
from ._warnings import warn_user

SUSPICIOUS_HEADS = 256
LSE_DTYPE = "float32"
LSE_BYTES = ELEMENT_BYTES[LSE_DTYPE]


def run_attention(
    arrays: Arrays,
    q: Any,
    k: Any,
    v: Any,
    options: _openvc.AttentionOptions,
    return_lse: bool,
    key_lengths: Any = None,
    key_mask: Any = None,
    sequences: Sequences | None = None,
) -> tuple[Any, Any]:
    """Attention on checked operands: the output and the LSE, or None in its place.

    key_lengths, key_mask: from key_operands(), sequences: from sequence_operands(), not yet checked
    against the others.
    """
    views = arrays.view("q", q), arrays.view("k", k), arrays.view("v", v)
    _memory: list[Any] = []  # lives until the work is queued
    if key_lengths is not None or key_mask is not None:
        options, _memory = select_keys(arrays, q, views, options, key_lengths, key_mask)
    if sequences is not None:
        options, _memory = divide(arrays, q, views, options, sequences)
    spec = arrays.output_spec(q)
    shape = views[0].array_shape
    warn_about_layout(shape)
    try:
        out = arrays.empty_like(q, shape, spec)
        lse, lse_address = (
            arrays.empty(lse_shape(shape), LSE_DTYPE, spec) if return_lse else (None, 0)
        )
    except Exception:
        # A call beyond the limits is refused for them, not for the memory that it would take.
        _openvc.require_supported(*views, options)
        raise
    view = arrays.view("out", out)
    if sequences is not None:  # the library leaves rows of no sequence as they are
        elements = math.prod(shape)
        arrays.fill(out, view.pointer, elements * ELEMENT_BYTES[spec.dtype], 0.0)
        if return_lse:
            arrays.fill(lse, lse_address, math.prod(lse_shape(shape)) * LSE_BYTES, -math.inf)
    _openvc.attention(
        *views,
        view,
        lse_address,
        options,
        get_num_threads(),
        *arrays.execution(spec),
    )
    return arrays.wrap_result(out, spec), arrays.wrap_result(lse, spec) if return_lse else None


def warn_about_layout(query_shape: Sequence[int]) -> None:
    """Warns of queries that look like [B, H, S, D], which would compute something else."""
    *_, queries, heads, _ = query_shape
    if heads > max(SUSPICIOUS_HEADS, queries):
        warn_user(
            f"q has shape {list(query_shape)}, which reads as {queries} tokens of {heads} heads: "
            f"the layout is {LAYOUT}; transpose if it is heads first"
        )


def lse_shape(query_shape: Sequence[int]) -> tuple[int, ...]:
    """[H, Sq] of [Sq, H, D], [B, H, Sq] of [B, Sq, H, D]."""
    *batch, queries, heads, _ = query_shape
    return (*batch, heads, queries)
