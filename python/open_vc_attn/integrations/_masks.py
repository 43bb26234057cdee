# SPDX-License-Identifier: BSD-3-Clause
"""Masks that only hide keys: recognised by their shape, so that nobody waits for their numbers.

Imports torch.
"""

from __future__ import annotations

from typing import Any

import torch


def key_padding(mask: Any, batch: int, keys: int, first_row_decides: bool) -> Any:
    """The mask as [B or 1, Skv] if it hides the same keys from every query and head, else None.

    Args:
        mask: broadcasts to [B, H, Sq, Skv].
        first_row_decides: a mask with rows of its own is known to be an outer product of key
            padding, in which rows of padded queries do not matter.
    """
    if mask.dtype != torch.bool or mask.dim() > 4 or mask.dim() < 1 or mask.shape[-1] != keys:
        return None
    mask = mask[(None,) * (4 - mask.dim())]
    if mask.shape[0] not in (1, batch):
        return None
    for axis in (1, 2):
        alike = mask.shape[axis] == 1 or mask.stride(axis) == 0
        if not alike and not (axis == 2 and first_row_decides):
            return None
    return mask[:, 0, 0]
