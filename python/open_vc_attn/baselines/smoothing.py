# SPDX-License-Identifier: BSD-3-Clause
"""V-Smooth: rows of V without the mean of their block, in E4M3."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional

from ..quality.e4m3 import E4M3_MAX, TINY, round_to_e4m3, scale_of

BLOCK_ROWS = 128
_BFLOAT16_ERROR = 2.0**-8  # relative, at most


class QuantizedValues(NamedTuple):
    """Row t of V is about scale * (codes[t] + means[t // 128])."""

    codes: torch.Tensor
    """[heads, blocks * 128, 128], float8_e4m3fn; zeros after the last row."""
    scale: torch.Tensor
    """[heads, 128], binary32: one for each channel."""
    means: torch.Tensor | None
    """[heads, blocks, 128], bfloat16, divided by the scale; None where nothing was subtracted."""

    def rows(self, head: int) -> torch.Tensor:
        """Rows of one head in binary32, without those that fill the last block."""
        rows = self.codes[head].float()
        if self.means is not None:
            rows = rows + self.means[head].float().repeat_interleave(BLOCK_ROWS, 0)
        return rows * self.scale[head]


def in_blocks(x: torch.Tensor) -> torch.Tensor:
    """[heads, rows, channels] as [heads, blocks, 128, channels]; zeros fill the last block."""
    return functional.pad(x, (0, 0, 0, -x.shape[1] % BLOCK_ROWS)).unflatten(1, (-1, BLOCK_ROWS))


def is_row(rows: int, device: torch.device) -> torch.Tensor:
    """[blocks, 128]: false for what fills the last block."""
    padded = rows + -rows % BLOCK_ROWS
    return (torch.arange(padded, device=device) < rows).view(-1, BLOCK_ROWS)


def quantize_values(v: torch.Tensor, *, demean: bool) -> QuantizedValues:
    """E4M3 with one scale for each channel of a head, v is [heads, rows, channels] in binary32.

    demean: subtract the mean of every 128 rows first, as it is stored, so that its rounding is
    part of what E4M3 rounds.
    """
    blocks = in_blocks(v)
    if not demean:
        scale = scale_of(blocks, (1, 2))
        return QuantizedValues(_codes(blocks / scale), scale[:, 0, 0], None)
    valid = is_row(v.shape[1], v.device)[..., None]
    means = (blocks.sum(2) / valid.sum(1))[:, :, None]
    # The rounding of the mean may add to the largest residual.
    largest = ((blocks - means).abs() * valid).amax(2, keepdim=True)
    bound = (largest + means.abs() * _BFLOAT16_ERROR).amax(1, keepdim=True)
    scale = bound.clamp(min=TINY) / E4M3_MAX
    stored = (means / scale).bfloat16()
    residuals = (blocks / scale - stored.float()) * valid
    return QuantizedValues(_codes(residuals), scale[:, 0, 0], stored[:, :, 0])


def _codes(blocks: torch.Tensor) -> torch.Tensor:
    return round_to_e4m3(blocks).to(torch.float8_e4m3fn).flatten(1, 2)
