# SPDX-License-Identifier: BSD-3-Clause
"""Simulated numerics of V."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import torch

from ..baselines.k_means import k_means
from ..baselines.smoothing import quantize_values
from ..baselines.state import CLUSTERS, ITERATIONS, group
from .axes import HEAD_DIM, mix_rest, principal_axes
from .e4m3 import round_to_e4m3, scale_of
from .product import fits_tensor_cores, product

_PARTS = re.compile(r"(?:c(?P<centroids>[1-9]\d*))?(?:(?P<basis>[rpm])(?P<columns>\d+))?")

GRAMMAR = "exact, head, pc, km, or c<centroids> and r|p|m<residual columns> joined, as in c1m7"


class Values(NamedTuple):
    """V is rows * channel_scale."""

    rows: torch.Tensor
    channel_scale: torch.Tensor | None
    few_bits: bool

    def weighted(self, weights: torch.Tensor, *, few_bits: bool) -> torch.Tensor:
        """weights V."""
        out = product(weights, self.rows, few_bits=few_bits and self.few_bits)
        return out if self.channel_scale is None else out.mul_(self.channel_scale)


def parse_values(word: str) -> Callable[[torch.Tensor], Values]:
    """The numerics that a word names: a function of v [tokens, 128] of one head.

    Raises:
        ValueError: no such numerics.
    """
    if word == "exact":
        return _values
    if word == "head":
        return lambda v: _scaled(v, scale_of(v, (0, 1)).expand(1, HEAD_DIM))
    if word == "pc":
        return lambda v: _scaled(v, scale_of(v, 0))
    if word == "km":
        return lambda v: _values(v_smooth(v))
    match = _PARTS.fullmatch(word)
    if word and match and int(match["columns"] or 0) <= HEAD_DIM:
        return lambda v: _values(_with_parts(v, match))
    raise ValueError(f"{word!r} for V; expected {GRAMMAR}")


def _values(v: torch.Tensor) -> Values:
    return Values(v, None, fits_tensor_cores(v))


def _scaled(v: torch.Tensor, scale: torch.Tensor) -> Values:
    codes = round_to_e4m3(v / scale)
    return Values(codes, scale[0], fits_tensor_cores(codes))


def _per_channel(x: torch.Tensor) -> torch.Tensor:
    scale = scale_of(x, 0)
    return round_to_e4m3(x / scale) * scale


def v_smooth(v: torch.Tensor) -> torch.Tensor:
    """V as VC-Attention's V-Smooth rounds it, in the order that it came in."""
    rows = v[None]
    order = group(rows, CLUSTERS, ITERATIONS)[0][0]
    found = torch.empty_like(v)
    found[order] = quantize_values(rows[:, order], demean=True).rows(0)[: len(v)]
    return found


def _with_parts(v: torch.Tensor, match: re.Match[str]) -> torch.Tensor:
    """mean + (e4m3(x) + residuals) U^T with x = (v - mean) U, E4M3 per channel.

    c<n>: the mean is the centroid of the row's cluster among n, in bfloat16. Basis U: r none, p
    principal axes of v - mean, m the same with the axes without residual columns mixed. Residuals
    of the columns with the largest rounding errors get an E4M3 scale of their own.
    """
    mean = torch.zeros_like(v)
    if match["centroids"]:
        clusters = k_means(v[None], int(match["centroids"]), ITERATIONS)
        mean = clusters.centroids[0, clusters.labels[0]]
    columns, x, basis = int(match["columns"] or 0), v - mean, None
    if match["basis"] in ("p", "m"):
        basis = principal_axes(x)
        if match["basis"] == "m":
            basis = mix_rest(basis, columns)
        x = x @ basis
    y = _per_channel(x)
    if columns:
        worst = (x - y).square().sum(0).argsort(descending=True)[:columns]
        y[:, worst] += _per_channel((x - y)[:, worst])
    return mean + (y if basis is None else y @ basis.T)
