# SPDX-License-Identifier: BSD-3-Clause
"""Attention with simulated numerics, in binary32.

Three words name them, one for each stage: Q and K, P, V. scores.py, probabilities.py and values.py
hold the formulas. Sums are binary32's: what the accumulators of tensor cores lose is not simulated.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from . import probabilities, scores, values

Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""q, k, v [1, S, H, 128] to the output [1, S, H, 128]."""

WORDS = 3
GRAMMAR = (
    f"three words 'QK P V' (QK: {scores.GRAMMAR}; P: {probabilities.GRAMMAR}; V: {values.GRAMMAR})"
)
# Scores that exist at a time: near the processor's caches; a share of a GPU's memory.
_SCORES_AT_A_TIME = {"cpu": 1 << 21, "cuda": 1 << 28}


def simulated(words: str) -> Attention:
    """Attention with the numerics that three words name.

    Raises:
        ValueError: a word names nothing.
    """
    qk, p, v = words.split()
    score_numerics = scores.parse_scores(qk)
    softmax = probabilities.parse_probabilities(p)
    value_numerics = values.parse_values(v)

    def attend_head(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        head, head_values = score_numerics(q, k), value_numerics(v)
        out = torch.empty_like(q)
        step = max(1, _SCORES_AT_A_TIME.get(q.device.type, 1 << 21) // k.shape[0])
        for begin in range(0, q.shape[0], step):
            weights = softmax.weights(head.rows(begin, begin + step))
            rows = head_values.weighted(weights, few_bits=softmax.few_bits)
            out[begin : begin + step] = rows / weights.sum(1, keepdim=True)
        return out

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        # Under autocast scores would be rounded to bfloat16.
        with torch.autocast(q.device.type, enabled=False):
            heads = [
                attend_head(*(x[0, :, head].float().contiguous() for x in (q, k, v)))
                for head in range(q.shape[2])
            ]
        return torch.stack(heads, 1)[None]

    return attend
