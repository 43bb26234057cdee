# SPDX-License-Identifier: BSD-3-Clause
"""Simulated numerics of Q K^T.

Scores are in octaves: softmax weights are 2^score, so q is multiplied by log2(e) / sqrt(128).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import NamedTuple

import torch

from .axes import HEAD_DIM, balanced_axes, common_axes, hadamard, mix_rest
from .e4m3 import power_of_two, round_to_e4m3
from .product import fits_tensor_cores, product
from .rows import e4m3_codes, int8_codes

OCTAVES = math.log2(math.e) / math.sqrt(HEAD_DIM)
STEP_COLUMNS = 32
"""Residual columns of one extra k-step."""
RESIDUAL_GAIN = 4.0  # residuals of E4M3 are at most 1/16 of the largest value
BLOCK_ROWS = 128
INT8_QUERY_ROWS, INT8_KEY_ROWS = 64, 128

_WORD = re.compile(r"(?P<base>int8|n[0-4])(?P<options>(?:k\d+|blk|had|pca|bal)*)")
_OPTION = re.compile(r"k\d+|blk|had|pca|bal")
_AXES = {"pca": common_axes, "bal": balanced_axes}

GRAMMAR = (
    "exact, blk, int8[had][pca|bal][blk] or n<extra steps 0 to 4>[k<columns for K>][had][pca|bal]"
)


class _Basis(NamedTuple):
    """What happens to Q and K before they are rounded."""

    hadamard: bool
    axes: str | None
    """A key of _AXES."""


class Scores(NamedTuple):
    """row_scale * (sum of a b^T over the terms) * key_scale, in octaves."""

    terms: list[tuple[torch.Tensor, torch.Tensor]]
    row_scale: torch.Tensor | None = None
    key_scale: torch.Tensor | None = None
    few_bits: bool = False

    def rows(self, begin: int, end: int) -> torch.Tensor:
        """The scores of these queries with all keys."""
        first, *rest = [product(a[begin:end], b.T, few_bits=self.few_bits) for a, b in self.terms]
        for term in rest:
            first += term
        if self.row_scale is not None:
            first *= self.row_scale[begin:end, None] if self.row_scale.dim() else self.row_scale
        if self.key_scale is not None:
            first *= self.key_scale
        return first


def parse_scores(word: str) -> Callable[[torch.Tensor, torch.Tensor], Scores]:
    """The numerics that a word names: a function of q and k [tokens, 128] of one head.

    Raises:
        ValueError: no such numerics.
    """
    if word == "exact":
        return _exact
    if word == "blk":
        return _e4m3_blocks
    match = _WORD.fullmatch(word)
    options = _OPTION.findall(match["options"]) if match else []
    axes = [option for option in options if option in _AXES]
    columns = [int(option[1:]) for option in options if option[1:].isdigit()]
    if match and len(set(options)) == len(options) and max(len(axes), len(columns)) <= 1:
        basis = _Basis("had" in options, axes[0] if axes else None)
        if match["base"] == "int8" and not columns:
            blocks = "blk" in options
            return lambda q, k: _int8(*_prepared(q, k, basis, keep=0), blocks=blocks)
        if match["base"] != "int8" and "blk" not in options:
            steps = int(match["base"][1:])
            keys = columns[0] if columns else STEP_COLUMNS // 2 * steps
            if keys <= STEP_COLUMNS * steps:
                return lambda q, k: _e4m3(*_prepared(q, k, basis, keep=keys), steps, keys)
    raise ValueError(f"{word!r} for Q and K; expected {GRAMMAR}")


def _with_scales(
    terms: list[tuple[torch.Tensor, torch.Tensor]],
    row_scale: torch.Tensor | None = None,
    key_scale: torch.Tensor | None = None,
) -> Scores:
    few = all(fits_tensor_cores(x) for term in terms for x in term)
    return Scores(terms, row_scale, key_scale, few)


def _exact(q: torch.Tensor, k: torch.Tensor) -> Scores:
    return _with_scales([(q, k)], torch.tensor(OCTAVES, device=q.device))


def _e4m3_blocks(q: torch.Tensor, k: torch.Tensor) -> Scores:
    """One scale for 128 rows of Q or of K, nothing else: FlashAttention-3's FP8, published Open-VC."""
    a, row_scale = e4m3_codes(q * OCTAVES, BLOCK_ROWS)
    b, key_scale = e4m3_codes(k, BLOCK_ROWS)
    return _with_scales([(a, b)], row_scale, key_scale)


def _prepared(
    q: torch.Tensor, k: torch.Tensor, basis: _Basis, keep: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Octaves; K minus its mean, which moves all scores of a row alike; the basis that is asked
    for. `keep`: how many of the strongest axes stay as they are."""
    q, k = q * OCTAVES, k - k.mean(0)
    if basis.hadamard:
        q, k = q @ hadamard(q.device), k @ hadamard(k.device)
    if basis.axes:
        a, b = _AXES[basis.axes](q, k)
        q, k = mix_rest(q @ a, keep), mix_rest(k @ b, keep)
    return q, k


def _int8(q: torch.Tensor, k: torch.Tensor, *, blocks: bool) -> Scores:
    """round(127 x / max |x|) per token, or per 64 queries and 128 keys."""
    a, row_scale = int8_codes(q, INT8_QUERY_ROWS if blocks else 1)
    b, key_scale = int8_codes(k, INT8_KEY_ROWS if blocks else 1)
    return _with_scales([(a, b)], row_scale, key_scale)


def _e4m3(q: torch.Tensor, k: torch.Tensor, steps: int, keys: int) -> Scores:
    """E4M3 with a power of two per head, and residual columns.

    With x' = e4m3(x s) / s and the residual x" = e4m3((x - x') 4 s) / 4 s the scores are
    q' k'^T + q"_Q k'_Q^T + q'_K k"_K^T; the channel sets K (`keys` of them) and Q (the other
    32 steps - keys) are those of the largest E[q_c^2] E[k_c^2].
    """
    a, b = power_of_two(q), power_of_two(k)
    q_hat, k_hat = round_to_e4m3(q * a) / a, round_to_e4m3(k * b) / b
    terms = [(q_hat, k_hat)]
    if steps:
        energies = (q * q).mean(0) * (k * k).mean(0)
        order = energies.argsort(descending=True)
        for_k, for_q = order[:keys], order[: STEP_COLUMNS * steps - keys]
        a, b = a * RESIDUAL_GAIN, b * RESIDUAL_GAIN
        q_rest, k_rest = round_to_e4m3((q - q_hat) * a) / a, round_to_e4m3((k - k_hat) * b) / b
        terms += [
            (q_rest[:, for_q].contiguous(), k_hat[:, for_q].contiguous()),
            (q_hat[:, for_k].contiguous(), k_rest[:, for_k].contiguous()),
        ]
    return _with_scales(terms)
