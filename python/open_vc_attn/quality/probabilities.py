# SPDX-License-Identifier: BSD-3-Clause
"""Simulated numerics of the softmax: weights of keys, not yet divided by their sum.

s is a row's scores in octaves, m its maximum, t the maximum of a block of keys. E4M3 has eight
codes an octave, so decode(8 s + 56) is 2^s with a piecewise-linear mantissa: ExpCast.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import NamedTuple

import torch

from .e4m3 import E4M3_MAX, TOP_CODE, decode, round_to_e4m3

CODES_PER_OCTAVE = 8
# The published ExpCast: its offset centres the error of the linear mantissa, its top code is 2^8.
PUBLISHED_OFFSET, PUBLISHED_TOP_CODE = 119.65, 120
# Tail correction: below code 16/3 the codes fall with a quarter of the slope.
TAIL_SLOPE, TAIL_OFFSET = 0.25, 4.0
SLACK_CODES = 16

_BLOCKS = re.compile(r"(?P<kind>anchor|loc|frac|rloc)(?P<keys>[1-9]\d*)(?P<variant>f|oct|slack)?")
_VARIANTS = {"anchor": ("f",), "loc": ("oct", "slack"), "frac": (), "rloc": ()}

GRAMMAR = (
    "exact, rne, ref, exp, tail, anchor<keys>[f], loc<keys>[oct|slack], frac<keys> or rloc<keys>"
)


class Probabilities(NamedTuple):
    """weights() may overwrite the scores that it gets, [queries, keys]."""

    weights: Callable[[torch.Tensor], torch.Tensor]
    few_bits: bool
    """Weights are E4M3 numbers, without factors of blocks."""


def parse_probabilities(word: str) -> Probabilities:
    """The numerics that a word names.

    Raises:
        ValueError: no such numerics.
    """
    if word == "exact":
        return Probabilities(_exact, few_bits=False)
    if word in _WHOLE_ROWS:
        return Probabilities(_WHOLE_ROWS[word], few_bits=True)
    match = _BLOCKS.fullmatch(word)
    if match and match["variant"] in (None, *_VARIANTS[match["kind"]]):
        change, keys = _BLOCK_KINDS[match["kind"]], int(match["keys"])
        variant = match["variant"] or ""
        return Probabilities(lambda s: _in_blocks(s, keys, variant, change), few_bits=False)
    raise ValueError(f"{word!r} for P; expected {GRAMMAR}")


def _exact(s: torch.Tensor) -> torch.Tensor:
    return s.sub_(s.amax(1, keepdim=True)).exp2_()


def _rounded(s: torch.Tensor) -> torch.Tensor:
    """e4m3(448 * 2^(s - m)): FlashAttention-3 and SageAttention."""
    peak = s.amax(1, keepdim=True) - math.log2(E4M3_MAX)  # one pass less over the scores
    return s.sub_(peak).exp2_().to(torch.float8_e4m3fn).float()


def _published(s: torch.Tensor) -> torch.Tensor:
    """decode(round(8 (s - m) + 119.65)): the published ExpCast."""
    s.sub_(s.amax(1, keepdim=True)).mul_(CODES_PER_OCTAVE).add_(PUBLISHED_OFFSET)
    return decode(s.round_().clamp_(0, PUBLISHED_TOP_CODE))


def _row_offset(s: torch.Tensor) -> torch.Tensor:
    return torch.floor(TOP_CODE - CODES_PER_OCTAVE * s.amax(1, keepdim=True))


def _exp_cast(s: torch.Tensor) -> torch.Tensor:
    """decode(round(8 s + floor(126 - 8 m))): contract 1."""
    offset = _row_offset(s)
    return decode(s.mul_(CODES_PER_OCTAVE).add_(offset).round_().clamp_(0, TOP_CODE))


def _exp_cast_with_tail(s: torch.Tensor) -> torch.Tensor:
    """With c the code of contract 1: decode(max(c, round(c / 4 + 4)))."""
    offset = _row_offset(s)
    codes = s.mul_(CODES_PER_OCTAVE).add_(offset).round_()
    tail = torch.round(codes * TAIL_SLOPE + TAIL_OFFSET)
    return decode(torch.maximum(codes, tail).clamp_(0, TOP_CODE))


_WHOLE_ROWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rne": _rounded,
    "ref": _published,
    "exp": _exp_cast,
    "tail": _exp_cast_with_tail,
}

_BlockChange = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, str], torch.Tensor]


def _in_blocks(s: torch.Tensor, keys: int, variant: str, change: _BlockChange) -> torch.Tensor:
    """change(scores [queries, blocks, keys], t, m, variant) of blocks of `keys` keys."""
    rows, columns = s.shape
    padded = torch.nn.functional.pad(s, (0, -columns % keys), value=float("-inf"))
    blocks = padded.view(rows, -1, keys)
    top = blocks.amax(2, keepdim=True)
    weights = change(blocks, top, top.amax(1, keepdim=True), variant)
    return weights.view(rows, -1)[:, :columns]


def _codes(blocks: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    return (blocks * CODES_PER_OCTAVE).add_(offset).round_().clamp_(0, TOP_CODE)


def _anchored(
    blocks: torch.Tensor, top: torch.Tensor, row: torch.Tensor, variant: str
) -> torch.Tensor:
    """Contract 2. With b = round(126 - 8 t): decode(round(8 s + b)) * 2^(t - m) / decode(round(8 t
    + b)), so that the block's largest weight is exact. Variant f: b rounded down."""
    round_offset = torch.floor if variant == "f" else torch.round
    offset = round_offset(TOP_CODE - CODES_PER_OCTAVE * top)
    factor = torch.exp2(top - row) / decode(_codes(top, offset))
    return decode(_codes(blocks, offset)).mul_(factor)


def _block_offset(
    blocks: torch.Tensor, top: torch.Tensor, row: torch.Tensor, variant: str
) -> torch.Tensor:
    """With b = floor(126 - 8 t), r = floor(126 - 8 m): decode(round(8 s + b)) * 2^((r - b) / 8).

    Variant slack: 110 instead of 126. Variant oct: b moved down to r plus a multiple of 8."""
    row_offset = torch.floor(TOP_CODE - CODES_PER_OCTAVE * row)
    top_code = TOP_CODE - SLACK_CODES if variant == "slack" else TOP_CODE
    offset = torch.floor(top_code - CODES_PER_OCTAVE * top)
    if variant == "oct":
        octaves = torch.floor((offset - row_offset) / CODES_PER_OCTAVE)
        offset = row_offset + CODES_PER_OCTAVE * octaves
    factor = torch.exp2((row_offset - offset) / CODES_PER_OCTAVE)
    return decode(_codes(blocks, offset)).mul_(factor)


def _fractional(
    blocks: torch.Tensor, top: torch.Tensor, row: torch.Tensor, variant: str
) -> torch.Tensor:
    """decode(round(8 (s - t) + 126)) * 2^(t - m): the offset is no whole number."""
    offset = TOP_CODE - CODES_PER_OCTAVE * top
    return decode(_codes(blocks, offset)).mul_(torch.exp2(top - row))


def _rounded_in_blocks(
    blocks: torch.Tensor, top: torch.Tensor, row: torch.Tensor, variant: str
) -> torch.Tensor:
    """e4m3(448 * 2^(s - t)) * 2^(t - m)."""
    weights = (blocks - top).exp2_().mul_(E4M3_MAX)
    return round_to_e4m3(weights).mul_(torch.exp2(top - row))


_BLOCK_KINDS: dict[str, _BlockChange] = {
    "anchor": _anchored,
    "loc": _block_offset,
    "frac": _fractional,
    "rloc": _rounded_in_blocks,
}
