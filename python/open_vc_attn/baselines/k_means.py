# SPDX-License-Identifier: BSD-3-Clause
"""K-means over the rows of many heads at once; the same bits in every run on a device.

No sum depends on the order in which threads arrive: members of a cluster are added as products
with a 0/1 matrix, in chunks of fixed size.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional

from ..quality.product import product

CHUNK_ROWS = 1024
"""Rows whose members are added in one product: many chunks keep a GPU busy."""
MAX_CLUSTERS = 256  # labels are bytes when rows are sorted by them
_TENSOR_CORE_TYPES = (torch.bfloat16, torch.float16)  # TF32 has their numbers exactly


class Clusters(NamedTuple):
    labels: torch.Tensor
    """[heads, rows], the cluster of each row."""
    centroids: torch.Tensor
    """[heads, clusters, channels] in binary32, rounded to bfloat16."""


def k_means(
    v: torch.Tensor, clusters: int, iterations: int, start: torch.Tensor | None = None
) -> Clusters:
    """Lloyd's iterations and a last assignment, by Euclidean distance.

    Args:
        v: [heads, rows, channels].
        start: centroids to start from; evenly spaced rows without. Empty clusters keep theirs.
    """
    few_bits = v.dtype in _TENSOR_CORE_TYPES
    v = v.float()
    centroids = evenly_spaced_rows(v, clusters) if start is None else start
    chunk = min(CHUNK_ROWS, v.shape[1])
    chunks = functional.pad(v, (0, 0, 0, -v.shape[1] % chunk)).unflatten(1, (-1, chunk))
    for _ in range(iterations):
        labels = nearest(v, centroids, few_bits=few_bits)
        centroids = _means(chunks, labels, centroids, few_bits)
    return Clusters(nearest(v, centroids, few_bits=few_bits), centroids)


def evenly_spaced_rows(v: torch.Tensor, clusters: int) -> torch.Tensor:
    """First centroids: rows from the first to the last; some repeat where rows are few."""
    last = v.shape[1] - 1
    rows = torch.arange(clusters, device=v.device) * last // max(1, clusters - 1)
    return _bfloat16(v[:, rows])


def nearest(v: torch.Tensor, centroids: torch.Tensor, *, few_bits: bool) -> torch.Tensor:
    """The centroid of each row of v, the first of equally near ones: |v - c|^2 is |v|^2 minus
    twice what is compared."""
    likeness = product(v, centroids.transpose(1, 2), few_bits=few_bits)
    likeness -= centroids.square().sum(2)[:, None] / 2
    return likeness.argmax(2)


def sorted_by(labels: torch.Tensor) -> torch.Tensor:
    """The rows in the order of their labels, those of a label in their own order: a counting sort,
    because keys are bytes."""
    return labels.to(torch.uint8).sort(dim=1, stable=True).indices


def _means(
    chunks: torch.Tensor, labels: torch.Tensor, of_empty: torch.Tensor, few_bits: bool
) -> torch.Tensor:
    heads, count, rows, _ = chunks.shape
    nobody = -1  # the label of rows that fill the last chunk
    labels = functional.pad(labels, (0, count * rows - labels.shape[1]), value=nobody)
    clusters = torch.arange(of_empty.shape[1], device=labels.device)
    members = labels[..., None] == clusters
    sizes = members.sum(1)[..., None]
    one_hot = members.float().view(heads, count, rows, -1)
    sums = product(one_hot.transpose(2, 3), chunks, few_bits=few_bits).sum(1)
    return torch.where(sizes > 0, _bfloat16(sums / sizes.clamp(min=1)), of_empty)


def _bfloat16(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().float()
