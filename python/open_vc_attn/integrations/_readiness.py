# SPDX-License-Identifier: BSD-3-Clause
"""What enable() finds out before the first forward pass. Imports torch."""

from __future__ import annotations

import functools
from typing import Any

import torch

from .. import _attention
from .._arrays import LARGEST_HEAD_DIM
from ._native import sdpa
from ._table import device_refusal

_SMOKE_TOKENS = 64
_SMOKE_ERROR = 0.2
"""Relative error that no call has, five times that of its 8 bits."""


def device_of(module: Any) -> Any:
    """The device of a module's first parameter or buffer; the CPU without any."""
    for tensor in (*module.parameters(), *module.buffers()):
        return tensor.device
    return torch.device("cpu")


def require_device(device: Any) -> None:
    """Refuses a device without kernels, or one on which they do not compute what they should.

    Raises:
        NotImplementedError, RuntimeError: with the reason.
    """
    device = torch.device(device)
    if device.type == "meta":
        return  # where the model will run is not known yet
    index = device.index
    if device.type == "cuda" and index is None:
        index = torch.cuda.current_device()
    reason = device_refusal(device.type, index or 0)
    if reason:
        raise NotImplementedError(
            f"target: its device is {device}, and {reason}"
            if device.type == "cuda"
            else f"target: its device is {device}; expected cuda or cpu. Move the model there."
        )
    _smoke(device.type, index or 0)


@functools.cache
def _smoke(kind: str, index: int) -> None:
    """A short call against torch's attention, once for each device."""
    device = torch.device(kind, index) if kind == "cuda" else torch.device(kind)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(1, _SMOKE_TOKENS, 1, LARGEST_HEAD_DIM, generator=generator).to(
            device, torch.bfloat16
        )
        for _ in range(3)
    )
    with torch.no_grad():
        expected = sdpa(q, k, v).float()
        found = _attention.attention(q, k, v).float()
    error = float((found - expected).norm() / expected.norm())
    if not error < _SMOKE_ERROR:
        raise RuntimeError(
            f"target: on {device} a call of {_SMOKE_TOKENS} tokens is {100 * error:.0f} % off; "
            f"expected less than {100 * _SMOKE_ERROR:.0f} %. Run open-vc-attn check."
        )
