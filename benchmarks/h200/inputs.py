# SPDX-License-Identifier: BSD-3-Clause
"""Inputs of the benchmarks: [1, S, H, D] BF16 tensors on the GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

HEAD_DIM = 128
CAPTURES = Path(__file__).resolve().parents[2] / "examples" / "captures"


@dataclass(frozen=True)
class Inputs:
    """One attention problem. Every contender, its time and its error are of these tensors."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    causal: bool = False

    @property
    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.q, self.k, self.v

    @property
    def tokens(self) -> int:
        return self.q.shape[1]

    @property
    def heads(self) -> int:
        return self.q.shape[2]

    @property
    def flops(self) -> float:
        """Of the two matrix products, a multiplication and an addition each; a causal mask halves
        the work."""
        return attention_flops(
            self.tokens, self.k.shape[1], self.heads, causal=self.causal, head_dim=self.q.shape[-1]
        )

    def with_causal_mask(self) -> Inputs:
        return replace(self, causal=True)


def attention_flops(
    queries: int, keys: int, heads: int, *, causal: bool = False, head_dim: int = HEAD_DIM
) -> float:
    return (2.0 if causal else 4.0) * queries * keys * heads * head_dim


def gaussian(
    tokens: int, heads: int, *, value_offset: float = 0.0, seed: int = 0, head_dim: int = HEAD_DIM
) -> Inputs:
    """Independent normal numbers."""
    generator = torch.Generator("cuda").manual_seed(seed)
    shape = 1, tokens, heads, head_dim

    def normal() -> torch.Tensor:
        return torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16)

    q, k, v = normal(), normal(), normal()
    return Inputs(q, k, v.add_(value_offset) if value_offset else v)


def channel_outliers(tokens: int, heads: int) -> Inputs:
    """Two channels of Q and two of K 20 times the rest; all keys of a head share an offset."""
    q, k, v = gaussian(tokens, heads, seed=1).tensors
    generator = torch.Generator("cuda").manual_seed(2)
    offset = torch.randn(1, 1, heads, HEAD_DIM, generator=generator, device="cuda")
    q[..., [17, 80]] *= 20
    k[..., [45, 99]] *= 20
    return Inputs(q, (k + 6 * offset).bfloat16(), v)


def example_captures() -> dict[str, Callable[[], Inputs]]:
    """The recorded inputs of the repository, by file name."""
    return {path.stem: partial(_load, path) for path in sorted(CAPTURES.glob("*.safetensors"))}


def _load(path: Path) -> Inputs:
    from open_vc_attn import load_capture

    capture = load_capture(path)
    tensors = (x.to("cuda", torch.bfloat16) for x in (capture.q, capture.k, capture.v))
    return Inputs(*(x if x.dim() == 4 else x.unsqueeze(0) for x in tensors))
