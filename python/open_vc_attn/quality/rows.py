# SPDX-License-Identifier: BSD-3-Clause
"""Quantisation of groups of rows."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .e4m3 import round_to_e4m3, scale_of

INT8_MAX = 127.0
_TINY = 1e-12


def in_groups(
    x: torch.Tensor, rows: int, change: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """change() of `rows` rows at a time, which come as [groups, rows, channels]; its result has
    this shape or one that expands to it. The last group is filled with zeros."""
    count, channels = x.shape
    padding = -count % rows
    groups = torch.nn.functional.pad(x, (0, 0, 0, padding)).reshape(-1, rows, channels)
    return change(groups).expand_as(groups).reshape(-1, channels)[:count]


def int8_codes(x: torch.Tensor, rows_of_a_scale: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(codes, scale of each row): x is about scale * code, codes are whole from -127 to 127."""
    peaks = in_groups(x.abs(), rows_of_a_scale, lambda y: y.amax((1, 2), keepdim=True))[:, :1]
    scale = peaks.clamp(min=_TINY) / INT8_MAX
    return torch.round(x / scale), scale[:, 0]


def e4m3_codes(x: torch.Tensor, rows_of_a_scale: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(codes, scale of each row): x is about scale * code, codes are E4M3 numbers to 448."""
    scale = in_groups(x, rows_of_a_scale, lambda y: scale_of(y, (1, 2)))[:, :1]
    return round_to_e4m3(x / scale), scale[:, 0]
