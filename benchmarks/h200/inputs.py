# SPDX-License-Identifier: BSD-3-Clause
"""Inputs of the benchmarks: [1, S, H, 128] BF16 tensors on the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch

HEAD_DIM = 128
CAPTURES = Path(__file__).resolve().parents[2] / "examples" / "captures"


class Inputs(NamedTuple):
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor

    @property
    def tokens(self) -> int:
        return self.q.shape[1]

    @property
    def heads(self) -> int:
        return self.q.shape[2]

    @property
    def flops(self) -> float:
        """Of the two matrix products, a multiplication and an addition each."""
        return 4.0 * self.tokens * self.k.shape[1] * self.heads * HEAD_DIM


def gaussian(tokens: int, heads: int, *, value_offset: float = 0.0, seed: int = 0) -> Inputs:
    """Independent normal numbers."""
    generator = torch.Generator("cuda").manual_seed(seed)
    shape = 1, tokens, heads, HEAD_DIM

    def normal() -> torch.Tensor:
        return torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16)

    q, k, v = normal(), normal(), normal()
    return Inputs(q, k, v.add_(value_offset) if value_offset else v)


def channel_outliers(tokens: int, heads: int) -> Inputs:
    """Two channels of Q and two of K 20 times the rest; all keys of a head share an offset."""
    q, k, v = gaussian(tokens, heads, seed=1)
    generator = torch.Generator("cuda").manual_seed(2)
    offset = torch.randn(1, 1, heads, HEAD_DIM, generator=generator, device="cuda")
    q[..., [17, 80]] *= 20
    k[..., [45, 99]] *= 20
    return Inputs(q, (k + 6 * offset).bfloat16(), v)


def captures() -> Iterator[tuple[str, Inputs]]:
    """Recorded inputs of real models, by file name."""
    from open_vc_attn import load_capture

    for path in sorted(CAPTURES.glob("*.safetensors")):
        capture = load_capture(path)
        tensors = (x.to("cuda", torch.bfloat16) for x in (capture.q, capture.k, capture.v))
        yield path.stem, Inputs(*(x if x.dim() == 4 else x.unsqueeze(0) for x in tensors))
