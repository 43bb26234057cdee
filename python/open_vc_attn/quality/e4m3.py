# SPDX-License-Identifier: BSD-3-Clause
"""E4M3 numbers in torch."""

from __future__ import annotations

import torch

E4M3_MAX = 448.0
TOP_CODE = 126
"""The code of 448; 127 is NaN."""
TINY = 1e-20  # keeps scales finite where everything is zero


def round_to_e4m3(x: torch.Tensor) -> torch.Tensor:
    """The nearest E4M3 numbers, ties to even; what lies beyond 448 becomes 448."""
    return x.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn).to(x.dtype)


def decode(codes: torch.Tensor) -> torch.Tensor:
    """The E4M3 numbers of codes from 0 to 126, which come as whole numbers in any type."""
    return codes.to(torch.uint8).view(torch.float8_e4m3fn).float()


def scale_of(x: torch.Tensor, dims: int | tuple[int, ...]) -> torch.Tensor:
    """Factor that maps the largest magnitude along `dims` to 448; dimensions are kept."""
    return x.abs().amax(dims, keepdim=True).clamp(min=TINY) / E4M3_MAX


def power_of_two(x: torch.Tensor) -> torch.Tensor:
    """The largest power of two whose product with x stays within 448."""
    return torch.exp2(torch.floor(torch.log2(E4M3_MAX / x.abs().amax().clamp(min=TINY))))
