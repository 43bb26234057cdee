# SPDX-License-Identifier: BSD-3-Clause
"""VC-Attention (arXiv 2609.15810): 8-bit Q and K, V-Smooth, ExpCast-FP8."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, final, get_args

import torch

from .._checks import as_whole, require_bool, require_one_of
from .._options import as_softmax_scale
from ..quality.axes import HEAD_DIM, hadamard
from ..quality.product import product
from ..quality.rows import e4m3_codes, int8_codes
from .arguments import Operands, checked_operands, checked_permutation, heads_first
from .k_means import MAX_CLUSTERS
from .online_softmax import PROBABILITIES, Probabilities, weights_in_tiles
from .smoothing import BLOCK_ROWS, QuantizedValues, in_blocks, quantize_values
from .state import CLUSTERS, ITERATIONS, MANY, LayerName, Order, VSmoothState, group

QkFormat = Literal["int8", "e4m3"]
QK_FORMATS: tuple[str, ...] = get_args(QkFormat)
_QUANTIZERS = {"int8": (int8_codes, torch.int8), "e4m3": (e4m3_codes, torch.float8_e4m3fn)}
# Scores that exist at a time: near a processor's caches; a share of a GPU's memory.
_SCORES_AT_A_TIME = {"cpu": 1 << 21, "cuda": 1 << 28}


class QuantizedRows(NamedTuple):
    """Q or K: row t is about scale[t] * codes[t]."""

    codes: torch.Tensor
    """[heads, blocks * 128, 128], int8 or float8_e4m3fn; zeros after the last row."""
    scale: torch.Tensor
    """[heads, blocks * 128], binary32, the same within a block."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class PreparedVC:
    """Quantised Q, K and V, from prepare_vc(). Heads are counted over the batch: b * H + h."""

    shape: tuple[int, ...]
    """Of q and of the output."""
    dtype: torch.dtype
    """Element type of the inputs and of the output."""
    keys: int
    q: QuantizedRows
    k: QuantizedRows
    v: QuantizedValues
    permutation: torch.Tensor | None
    """[heads, keys]: row i of k and v is the caller's row permutation[i]; None in their order."""

    @property
    def device(self) -> torch.device:
        """Device of the inputs and of the output."""
        return self.q.codes.device

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        tensors = [*self.q, *self.k, *self.v, self.permutation]
        return sum(x.numel() * x.element_size() for x in tensors if x is not None)

    def __repr__(self) -> str:
        return (
            f"PreparedVC(q={list(self.shape)}, keys={self.keys}, dtype={self.dtype}, "
            f"device={self.device}, sorted={self.permutation is not None}, "
            f"demeaned={self.v.means is not None}, nbytes={self.nbytes})"
        )


def vc_attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    state: VSmoothState | None = None,
    layer: LayerName | None = None,
    softmax_scale: float | None = None,
    probabilities: Probabilities = "expcast",
    qk_format: QkFormat = "int8",
    v_smooth: bool = True,
    clusters: int | None = None,
    iterations: int | None = None,
    permutation: torch.Tensor | None = None,
    check_permutation: bool = True,
) -> torch.Tensor:
    """Attention with the numerics of VC-Attention: prepare_vc() and attention_vc().

    Returns:
        The output: q's shape, element type and device.
    """
    # What attention_vc() would refuse is refused before a state changes.
    softmax_scale = as_softmax_scale(softmax_scale)
    require_one_of("probabilities", probabilities, PROBABILITIES)
    prepared = prepare_vc(
        *(q, k, v),
        state=state,
        layer=layer,
        qk_format=qk_format,
        v_smooth=v_smooth,
        clusters=clusters,
        iterations=iterations,
        permutation=permutation,
        check_permutation=check_permutation,
    )
    return attention_vc(prepared, softmax_scale=softmax_scale, probabilities=probabilities)


def prepare_vc(
    q: Any,
    k: Any,
    v: Any,
    *,
    state: VSmoothState | None = None,
    layer: LayerName | None = None,
    qk_format: QkFormat = "int8",
    v_smooth: bool = True,
    clusters: int | None = None,
    iterations: int | None = None,
    permutation: torch.Tensor | None = None,
    check_permutation: bool = True,
) -> PreparedVC:
    """Quantises Q, K and V as VC-Attention does.

    K loses its mean over the tokens; Q and K are rotated by a Hadamard matrix and rounded with one
    scale for 128 rows. V-Smooth sorts the rows of K and V by clusters of V, takes the mean of 128
    sorted rows of V away and rounds the rest to E4M3 with one scale for each channel.

    Args:
        q: queries, torch tensor [S, H, 128] or [B, S, H, 128], bfloat16, float16 or float32.
        k: keys of q's batch, heads, element type and device; their number may differ.
        v: values, of k's shape.
        state: what a sampler keeps over its steps; it decides whether this call groups. Without
            it every call does, as in a grouping step.
        layer: name of this attention call in the state.
        qk_format: int8 or e4m3.
        v_smooth: False leaves V in its order and takes no means away.
        clusters, iterations: of k-means, 64 and 4 by default; a state has its own.
        permutation: [B * H, S] int64, instead of k-means; that of an earlier PreparedVC.
        check_permutation: whether to look at each number of the permutation.

    Raises:
        TypeError, ValueError, NotImplementedError: as open_vc_attn.attention(); an argument that
            would have no effect; a state that was used with other shapes under this name.
    """
    operands = checked_operands(q, k, v)
    require_one_of("qk_format", qk_format, QK_FORMATS)
    require_bool("v_smooth", v_smooth)
    require_bool("check_permutation", check_permutation)
    grouping = {"clusters": clusters, "iterations": iterations, "permutation": permutation}
    _require_effect(state, layer, v_smooth, grouping)
    clusters = as_whole("clusters", CLUSTERS if clusters is None else clusters, 1, MAX_CLUSTERS)
    iterations = as_whole("iterations", ITERATIONS if iterations is None else iterations, 1, MANY)
    # Under autocast products would be rounded to bfloat16.
    with torch.no_grad(), torch.autocast(operands.q.device.type, enabled=False):
        if permutation is not None:
            permutation = checked_permutation(permutation, operands.k, check=check_permutation)
            order = Order(permutation, demean=True)
        elif not v_smooth:
            order = Order(None, demean=False)
        elif state is not None and layer is not None:
            order = state.order(layer, heads_first(operands.v))
        else:
            order = Order(group(heads_first(operands.v), clusters, iterations)[0], demean=True)
        prepared = quantize(operands, qk_format, order)
    return PreparedVC(tuple(q.shape), q.dtype, operands.k.shape[1], *prepared, order.permutation)


def attention_vc(
    prepared: PreparedVC,
    *,
    softmax_scale: float | None = None,
    probabilities: Probabilities = "expcast",
) -> torch.Tensor:
    """Attention on quantised inputs: an online softmax over tiles of 128 keys.

    Weights are E4M3 numbers under the running row maximum. The denominator and the rows of means
    take the sums of the same numbers, so that the output is an average of rows of V.

    Args:
        prepared: from prepare_vc().
        softmax_scale: factor of the scores, finite and > 0; 1/sqrt(128) by default.
        probabilities: expcast, an affine map of the score to the code; exponential, e4m3(exp(s)).

    Returns:
        The output: q's shape, element type and device.
    """
    if not isinstance(prepared, PreparedVC):
        raise TypeError(
            f"prepared: {type(prepared).__name__}; expected a PreparedVC. Make one with "
            "prepare_vc(q, k, v)."
        )
    scale = as_softmax_scale(softmax_scale) or HEAD_DIM**-0.5
    require_one_of("probabilities", probabilities, PROBABILITIES)
    queries = prepared.shape[-3]
    with torch.no_grad(), torch.autocast(prepared.device.type, enabled=False):
        heads = [
            _attend_head(prepared, head, queries, scale, probabilities)
            for head in range(len(prepared.q.codes))
        ]
        out = torch.stack(heads).to(prepared.dtype)
        *batch, _, count, _ = prepared.shape
        return out.unflatten(0, (*batch, count)).transpose(-2, -3).contiguous()


def _require_effect(state: Any, layer: Any, v_smooth: bool, grouping: dict[str, Any]) -> None:
    """Refuses arguments that would be ignored."""
    if state is not None and not isinstance(state, VSmoothState):
        raise TypeError(
            f"state: {type(state).__name__}; expected a VSmoothState. Make one with "
            "VSmoothState(steps=...)."
        )
    if (state is None) != (layer is None):
        raise ValueError(
            f"state, layer: {'layer' if state is None else 'state'} without the other; expected "
            "both or none. Name the layer, with layer=3 for example."
        )
    given = [name for name, value in grouping.items() if value is not None]
    if given and (state is not None or not v_smooth):
        why = "v_smooth=False" if state is None else "a state, which has its own"
        raise ValueError(
            f"{given[0]}: given with {why}; expected one of them. Leave {given[0]} out."
        )
    if state is not None and not v_smooth:
        raise ValueError(
            "state: given with v_smooth=False; expected one of them. Leave state and layer out."
        )
    if grouping["permutation"] is not None and len(given) > 1:
        raise ValueError(
            f"permutation: given with {given[0]}; expected one of them. Leave {given[0]} out."
        )


def quantize(
    operands: Operands, qk_format: str, order: Order
) -> tuple[QuantizedRows, QuantizedRows, QuantizedValues]:
    """Q, K and V, with K and V in this order."""
    q = heads_first(operands.q).float()
    k = heads_first(operands.k, order.permutation).float()
    v = heads_first(operands.v, order.permutation).float()
    rotation = hadamard(q.device)
    return (
        _quantized_rows(product(q, rotation, few_bits=False), qk_format),
        _quantized_rows(product(k - k.mean(1, keepdim=True), rotation, few_bits=False), qk_format),
        quantize_values(v, demean=order.demean),
    )


def _quantized_rows(x: torch.Tensor, qk_format: str) -> QuantizedRows:
    """Scales are shared by 128 rows of a head."""
    padded = in_blocks(x).flatten(1, 2)
    quantize, dtype = _QUANTIZERS[qk_format]
    codes, scale = quantize(padded.flatten(0, 1), BLOCK_ROWS)
    return QuantizedRows(codes.to(dtype).view(padded.shape), scale.view(padded.shape[:2]))


def _attend_head(
    prepared: PreparedVC, head: int, queries: int, softmax_scale: float, probabilities: str
) -> torch.Tensor:
    q, k, v = prepared.q, prepared.k, prepared.v
    octaves = k.scale[head] * (softmax_scale * math.log2(math.e))
    k_codes, v_codes = k.codes[head].float(), v.codes[head].float()
    means = None if v.means is None else v.means[head].float()
    out = torch.empty(queries, HEAD_DIM, device=prepared.device)
    step = max(1, _SCORES_AT_A_TIME.get(prepared.device.type, 1 << 21) // len(k_codes))
    for begin in range(0, queries, step):
        end = min(begin + step, queries)
        scores = product(q.codes[head, begin:end].float(), k_codes.T, few_bits=True)
        scores.mul_(q.scale[head, begin:end, None]).mul_(octaves)
        scores[:, prepared.keys :] = -math.inf
        weights = weights_in_tiles(scores.unflatten(1, (-1, BLOCK_ROWS)), probabilities)
        sums = weights.sum(2)
        rows = product(weights.flatten(1), v_codes, few_bits=False)
        if means is not None:
            rows += product(sums, means, few_bits=False)
        out[begin:end] = rows * (v.scale[head] / sums.sum(1, keepdim=True))
    return out
