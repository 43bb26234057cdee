# SPDX-License-Identifier: BSD-3-Clause
"""Q, K and V of a call: checked, and one matrix for each head."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from .._arrays import LAYOUT
from .._frameworks import check_operands
from ..quality.axes import HEAD_DIM


class Operands(NamedTuple):
    """Torch tensors [B, S, H, 128]."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor


def checked_operands(q: Any, k: Any, v: Any) -> Operands:
    """The operands of an attention call without a batch axis or with one.

    Raises:
        TypeError, ValueError, NotImplementedError: as open_vc_attn.attention().
    """
    arrays, q, k, v = check_operands(q, k, v)
    if arrays.name != "torch":
        raise TypeError(
            f"q, k, v: arrays of {arrays.name}; expected torch tensors. Use torch.from_numpy() or "
            "torch.from_dlpack()."
        )
    found = Operands(*(x if x.dim() == 4 else x.unsqueeze(0) for x in (q, k, v)))
    shapes = f"q, k, v: shapes {list(q.shape)}, {list(k.shape)}, {list(v.shape)}"
    if any(x.shape[3] != HEAD_DIM for x in found):
        raise NotImplementedError(
            f"{shapes}; expected {HEAD_DIM} channels (D of {LAYOUT}). Pad them with zeros, and pass "
            "softmax_scale = 1/sqrt(D)."
        )
    if found.k.shape != found.v.shape or found.q.shape[::2] != found.k.shape[::2]:
        raise ValueError(
            f"{shapes}; expected k and v of one shape, and the batch and heads of q ({LAYOUT}). "
            "Repeat K/V heads for grouped queries."
        )
    if not (found.q.numel() and found.k.numel()):
        raise ValueError(f"{shapes}; expected at least one token and one head. Leave the call out.")
    return found


def heads_first(x: torch.Tensor, permutation: torch.Tensor | None = None) -> torch.Tensor:
    """[B, S, H, 128] as [B * H, S, 128], the rows of each head in the order of its permutation."""
    if permutation is None:
        return x.transpose(1, 2).flatten(0, 1)
    batch, rows, heads, channels = x.shape
    item = torch.arange(batch, device=x.device)[:, None, None]
    head = torch.arange(heads, device=x.device)[:, None]
    index = (item * rows + permutation.view(batch, heads, rows)) * heads + head
    chosen = x.reshape(-1, channels).index_select(0, index.flatten())
    return chosen.view(batch * heads, rows, channels)


def checked_permutation(permutation: Any, k: torch.Tensor, *, check: bool) -> torch.Tensor:
    """A permutation of the keys of every head, [B * H, S]; check: look at each of its numbers."""
    if not isinstance(permutation, torch.Tensor) or permutation.dtype != torch.int64:
        found = getattr(permutation, "dtype", type(permutation).__name__)
        raise TypeError(
            f"permutation: {found}; expected a torch tensor of int64. Use that of a prepared call."
        )
    batch, rows, heads, _ = k.shape
    expected = (batch * heads, rows)
    if tuple(permutation.shape) != expected or permutation.device != k.device:
        raise ValueError(
            f"permutation: shape {list(permutation.shape)} on {permutation.device}; expected "
            f"{list(expected)}, batch * heads and keys, on {k.device}. Use that of a prepared call "
            "of the same shapes."
        )
    if check:
        rows_once = torch.arange(rows, device=k.device).expand(expected)
        if not torch.equal(permutation.sort(dim=1).values, rows_once):
            raise ValueError(
                "permutation: a head lacks some rows; expected each of its rows once. Use "
                "argsort() of one number for each row."
            )
    return permutation
