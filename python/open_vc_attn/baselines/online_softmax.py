# SPDX-License-Identifier: BSD-3-Clause
"""E4M3 weights under the running row maximum of an online softmax."""

from __future__ import annotations

from typing import Literal, get_args

import torch

from ..quality.e4m3 import decode, round_to_e4m3
from ..quality.probabilities import CODES_PER_OCTAVE, PUBLISHED_OFFSET, PUBLISHED_TOP_CODE

Probabilities = Literal["expcast", "exponential"]
PROBABILITIES: tuple[str, ...] = get_args(Probabilities)
_TOP_OCTAVE = 8  # the largest weight is 2^8: the code 120


def weights_in_tiles(scores: torch.Tensor, probabilities: str) -> torch.Tensor:
    """Weights [queries, tiles, keys] of scores in octaves, which it overwrites.

    Tiles come one after the other. With s a score and m the largest of the row up to the end of
    its tile, the weight is decode(round(8 (s - m) + 119.65)), at most code 120, or
    e4m3(2^(s - m + 8)); times 2^(m - the largest of the row), which is what rescaling the sums at
    every later tile comes to. The score of a missing key is -inf; a row has a key in its first
    tile.
    """
    top = scores.amax(2, keepdim=True).cummax(1).values
    if probabilities == "expcast":
        offset = CODES_PER_OCTAVE * top - PUBLISHED_OFFSET
        codes = scores.mul_(CODES_PER_OCTAVE).sub_(offset).round_()
        weights = decode(codes.clamp_(0, PUBLISHED_TOP_CODE))
    else:
        weights = round_to_e4m3(scores.sub_(top - _TOP_OCTAVE).exp2_())
    return weights.mul_(torch.exp2(top - top[:, -1:]))
