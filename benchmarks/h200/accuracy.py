# SPDX-License-Identifier: BSD-3-Clause
"""Error of an attention output against exact attention in float64, over sampled queries."""

from __future__ import annotations

import torch
from inputs import Inputs

SAMPLED_ROWS = 64


class ExactRows:
    """Exact attention of some queries of every head."""

    def __init__(self, inputs: Inputs, rows: int = SAMPLED_ROWS) -> None:
        generator = torch.Generator().manual_seed(0)
        self._rows = torch.randperm(inputs.tokens, generator=generator)[:rows].to("cuda")
        heads = [
            self._exact(inputs.q[b, self._rows, h], inputs.k[b, :, h], inputs.v[b, :, h])
            for b in range(inputs.q.shape[0])
            for h in range(inputs.heads)
        ]
        batch, _, head_count, channels = inputs.q.shape
        exact = torch.stack(heads).view(batch, head_count, -1, channels)
        self._exact_output = exact.transpose(1, 2)  # [B, rows, H, D]

    def relative_l2(self, output: torch.Tensor) -> float:
        """||output - exact|| / ||exact||; NaN if a sampled value is not finite."""
        difference = output[:, self._rows].double() - self._exact_output
        return float(difference.norm() / self._exact_output.norm())

    @staticmethod
    def _exact(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = q.double() @ k.double().T * q.shape[-1] ** -0.5
        return scores.softmax(-1) @ v.double()
