# SPDX-License-Identifier: BSD-3-Clause
"""Error of an attention output against exact attention in float64, over sampled queries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from inputs import Inputs

SAMPLED_ROWS = 256


class ExactRows:
    """Exact attention of some queries of every head."""

    def __init__(self, inputs: Inputs, rows: int = SAMPLED_ROWS) -> None:
        generator = torch.Generator().manual_seed(0)
        self._rows = torch.randperm(inputs.tokens, generator=generator)[:rows].to(inputs.q.device)
        batch = inputs.q.shape[0]
        heads = [self._exact(inputs, b, h) for b in range(batch) for h in range(inputs.heads)]
        exact = torch.stack(heads).view(batch, inputs.heads, *heads[0].shape)
        self._exact_output = exact.transpose(1, 2)  # [B, rows, H, D]

    def relative_l2_of_heads(self, output: torch.Tensor) -> list[float]:
        """||output - exact|| / ||exact|| of every head; NaN if a sampled value is not finite."""
        difference = output[:, self._rows].double() - self._exact_output
        axes = (0, 1, 3)
        norm = partial(torch.linalg.vector_norm, dim=axes)
        ratio = norm(difference) / norm(self._exact_output)
        return [float(value) for value in ratio]

    def describe(self, output: torch.Tensor) -> dict[str, Any]:
        """The error of all heads as one number, the largest, and each."""
        heads = self.relative_l2_of_heads(output)
        return {
            "rel_l2": root_mean_square(heads),
            # max() would pass over NaN.
            "rel_l2_worst": math.nan if any(map(math.isnan, heads)) else max(heads),
            "rel_l2_heads": [round(value, 6) for value in heads],
        }

    def _exact(self, inputs: Inputs, batch: int, head: int) -> torch.Tensor:
        q = inputs.q[batch, self._rows, head].double()
        k, v = (x[batch, :, head].double() for x in (inputs.k, inputs.v))
        scores = q @ k.T * q.shape[-1] ** -0.5
        if inputs.causal:
            # Aligned to the bottom right: query i sees the keys up to i + Skv - Sq.
            last_key = self._rows + (k.shape[0] - inputs.tokens)
            keys = torch.arange(k.shape[0], device=k.device)
            scores.masked_fill_(keys > last_key[:, None], -math.inf)
        return scores.softmax(-1) @ v


def root_mean_square(values: Sequence[float]) -> float:
    return math.sqrt(sum(value * value for value in values) / len(values))
