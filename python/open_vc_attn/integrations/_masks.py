# SPDX-License-Identifier: BSD-3-Clause
"""Masks that only hide keys: recognised, and served without those keys. Imports torch.

The kernels have no key mask. Attention over the valid keys alone is the same, and exact: keys()
gives them for each item of the batch.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import torch


class Keys(NamedTuple):
    """The valid keys of one item of a batch."""

    length: int
    where: Any = None
    """Their indices, where they are not the first `length`."""

    def of(self, x: Any) -> Any:
        """These keys of [1, Skv, H, D]."""
        return x[:, : self.length] if self.where is None else x.index_select(1, self.where)


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


_known: dict[int, tuple[Any, int, list[Keys]]] = {}


def valid_keys(mask: Any, padding: Any) -> list[Keys]:
    """The valid keys of each item of `padding` [B or 1, Skv], which is made from `mask`.

    It waits for the device, so the answer is kept as long as the mask lives: models pass one mask
    to all their layers.
    """
    known = _known.get(id(mask))
    if known is not None and known[0]() is mask and known[1] == mask._version:
        return known[2]
    found = [_keys(row) for row in padding.cpu()]
    if padding.device.type != "cpu":
        found = [
            keys._replace(where=None if keys.where is None else keys.where.to(padding.device))
            for keys in found
        ]
    if not mask.is_inference():  # without a version, a change would go unseen
        key = id(mask)
        _known[key] = (weakref.ref(mask, lambda _: _known.pop(key, None)), mask._version, found)
    return found


def _keys(row: Any) -> Keys:
    length = int(row.sum())
    if bool(row[:length].all()):
        return Keys(length)
    return Keys(length, row.nonzero().flatten())
