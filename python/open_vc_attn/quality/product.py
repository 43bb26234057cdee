# SPDX-License-Identifier: BSD-3-Clause
"""Matrix products with binary32 sums, on tensor cores where that changes no factor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

# TF32 keeps 11 significant bits of binary32's 24: codes of E4M3 and INT8 and numbers in bfloat16
# pass unchanged.
_DROPPED_BITS = 0x1FFF


def holds_in_tf32(x: torch.Tensor) -> bool:
    """Whether TF32 has every element exactly."""
    return not bool((x.contiguous().view(torch.int32) & _DROPPED_BITS).any())


def fits_tensor_cores(x: torch.Tensor) -> bool:
    """Whether tensor cores are there and take x as it is."""
    return x.is_cuda and holds_in_tf32(x)


@contextmanager
def tf32(enabled: bool) -> Iterator[None]:
    """Whether products of binary32 matrices may round their factors to TF32."""
    settings = torch.backends.cuda.matmul
    before = settings.allow_tf32
    settings.allow_tf32 = enabled
    try:
        yield
    finally:
        settings.allow_tf32 = before


def product(a: torch.Tensor, b: torch.Tensor, *, few_bits: bool) -> torch.Tensor:
    """a b in binary32. `few_bits`: fits_tensor_cores() holds for both."""
    if not a.is_cuda:
        return a @ b
    with tf32(few_bits):
        return a @ b
