# SPDX-License-Identifier: BSD-3-Clause
"""The numerics contract of docs/numerics.md for one head, in NumPy and without the library.

Everything that a backend stores as bytes is reproduced bit by bit: codes, scales, means, residual
columns, packed V. Sums that the contract only bounds are float64. What the planner decides (extra
steps, rotation, wide scores) is an input; everything that follows from it is derived here.
"""

from typing import NamedTuple

import numpy

F32 = numpy.float32

# Constants of the contract, written out again on purpose.
CONTRACT_VERSION = 2
HEAD_DIM = 128
KEY_BLOCK = 128
QUERY_BLOCK = 256
MID_WINDOW_BLOCKS = 4
CHANNELS_PER_STEP = 16
RESIDUAL_BALANCE = 2
KEY_GROUP = 16
VALUE_COLUMNS = 7  # of heads whose V is on axes, which this oracle leaves out
VALUE_ROWS = HEAD_DIM + VALUE_COLUMNS + 1
TWICE_LOG2_SCORE_LIMIT = 31
CODE_UNITS_PER_NAT = F32(8 * 1.4426950408889634)
PEAK_CODE = 126
MAX_CODE = 126
E4M3_MAX = F32(448)
MIN_MEAN_SHARE = F32(1 / 16)
LEAST_TOP = -65504.0


class Plan(NamedTuple):
    """What the planner decided."""

    extra_steps: int = 0
    rotated: bool = False
    wide: bool = False


class PreparedHead(NamedTuple):
    """The quantised arrays of one head, without padding."""

    query_codes: numpy.ndarray  # [Sq, 128]
    key_codes: numpy.ndarray  # [Skv, 128]
    value_codes: numpy.ndarray  # [Skv, 128]
    query_columns: numpy.ndarray  # [steps, Sq, 32]
    key_columns: numpy.ndarray  # [steps, Skv, 32]
    value_scales: numpy.ndarray  # [128]
    value_means: numpy.ndarray  # [128]
    score_exponent: int
    smoothing_shifts: numpy.ndarray  # [Sq]


# ---- E4M3 ------------------------------------------------------------------------------------


def _decoded_codes():
    code = numpy.arange(256)
    exponent, mantissa = (code >> 3) & 15, code & 7
    size = numpy.where(exponent == 0, mantissa / 512, 2.0 ** (exponent - 7) * (1 + mantissa / 8))
    size[(code & 127) == 127] = numpy.nan
    return numpy.where(code >> 7, -size, size)


DECODED = _decoded_codes()


def encode(x):
    """E4M3 codes of floats: nearest, ties to even, saturating."""
    x = numpy.asarray(x, numpy.float64)
    table = DECODED[: MAX_CODE + 1]
    size = numpy.minimum(numpy.abs(x), 448.0)
    upper = numpy.searchsorted(table, size).clip(1, MAX_CODE)
    below, above = size - table[upper - 1], table[upper] - size
    pick_upper = (above < below) | ((above == below) & (upper % 2 == 0))
    code = numpy.where(pick_upper, upper, upper - 1)
    return (code | numpy.where(numpy.signbit(x), 128, 0)).astype(numpy.uint8)


# ---- preparation -------------------------------------------------------------------------------


def canonical_sum(rows):
    """Sums over axis 0 in the order of the contract: 16 lanes per group of 128, balanced trees."""
    rows = numpy.asarray(rows, F32)
    while len(rows) > 1:
        padded = numpy.zeros((-(-len(rows) // 128) * 128, rows.shape[1]), F32)
        padded[: len(rows)] = rows
        rounds = padded.reshape(-1, 8, 16, rows.shape[1])
        lanes = numpy.zeros_like(rounds[:, 0])
        for i in range(8):
            lanes = lanes + rounds[:, i]
        while lanes.shape[1] > 1:
            lanes = lanes[:, 0::2] + lanes[:, 1::2]
        rows = lanes[:, 0]
    return rows[0]


def hadamard(rows):
    """Unnormalised Walsh-Hadamard transform of each row, float32."""
    rows = rows.astype(F32)
    stride = 1
    while stride < HEAD_DIM:
        pairs = rows.reshape(-1, HEAD_DIM // (2 * stride), 2, stride)
        a, b = pairs[:, :, 0], pairs[:, :, 1]
        rows = numpy.stack((a + b, a - b), 2).reshape(-1, HEAD_DIM)
        stride *= 2
    return rows


def floor_log2(x):
    return int(numpy.frexp(x)[1]) - 1


def max_row_squares(rows):
    return numpy.square(rows.astype(numpy.float64)).sum(1).max()


def score_multipliers(q, k, key_mean, gain, rotated):
    """Multipliers of Q and K and the exponent of the scores, from bounds of the row norms."""
    if not (numpy.any(q) and numpy.any(k)):
        return gain, F32(1), 0
    gain_exponent = floor_log2(gain)
    mantissa = float(gain) * 2.0**-gain_exponent
    query_h = floor_log2(max_row_squares(q) * mantissa**2) + 1 + 2 * gain_exponent
    mean_squares = max_row_squares(key_mean[None])
    if mean_squares > 0:
        key_h = floor_log2(2 * (max_row_squares(k) + mean_squares)) + 1
    else:
        key_h = floor_log2(max_row_squares(k)) + 1
    if rotated:
        query_h, key_h = query_h + 1, key_h - 1
    excess = query_h + key_h - TWICE_LOG2_SCORE_LIMIT
    score_exponent = (excess + 1) >> 1 if excess > 0 else 0
    query_exponent = (2 * score_exponent + query_h - key_h) >> 2
    key_exponent = score_exponent - query_exponent
    return F32(gain * 2.0**-query_exponent), F32(2.0**-key_exponent), score_exponent


def residual_channels(q, k, gain, steps):
    """The channels with the largest E[q_c^2] Var[k_c], largest first."""
    q2 = numpy.square(q.astype(numpy.float64) * gain).mean(0)
    k2 = numpy.square(k.astype(numpy.float64)).mean(0)
    return numpy.argsort(-(q2 * k2), kind="stable")[: CHANNELS_PER_STEP * steps]


def residual_columns(scaled, channels, steps):
    """Bytes [steps, rows, 16] of the residuals and of the values that meet them."""
    x = scaled[:, channels].reshape(len(scaled), steps, CHANNELS_PER_STEP).swapaxes(0, 1)
    value = DECODED[encode(x)]
    low = encode((x - value) * 2.0**RESIDUAL_BALANCE)
    high = encode(value * 2.0**-RESIDUAL_BALANCE)
    return low, high


def prepare(q, k, v, scale, plan, smooth_keys=True, smooth_values=True, per_head_scale=False):
    """Quantised Q, K and V of one head; q, k, v are [S, 128] float32 of moderate size."""
    gain = F32(CODE_UNITS_PER_NAT * F32(scale))
    mean = canonical_sum(k) / F32(len(k)) if smooth_keys else numpy.zeros(HEAD_DIM, F32)
    query_multiplier, key_multiplier, score_exponent = score_multipliers(
        q, k, mean, gain, plan.rotated
    )
    centred = k - mean
    channels = residual_channels(q, centred, gain, plan.extra_steps)
    if plan.rotated:
        scaled_q = hadamard(q) * F32(2.0**-3) * query_multiplier
        scaled_k = hadamard(centred) * F32(2.0**-4) * key_multiplier
    else:
        scaled_q, scaled_k = q * query_multiplier, centred * key_multiplier
    q_low, q_high = residual_columns(scaled_q, channels, plan.extra_steps)
    k_low, k_high = residual_columns(scaled_k, channels, plan.extra_steps)

    value_mean = canonical_sum(v) / F32(len(v))
    largest = numpy.maximum(numpy.abs(v.max(0)), numpy.abs(v.min(0)))
    if not smooth_values:
        value_mean[:] = 0
    value_mean[numpy.abs(value_mean) < MIN_MEAN_SHARE * largest] = 0
    spread = numpy.maximum(v.max(0) - value_mean, value_mean - v.min(0))
    if per_head_scale:
        spread = numpy.full_like(spread, spread.max())
    value_scale = spread / E4M3_MAX
    with numpy.errstate(divide="ignore"):
        value_multiplier = numpy.where(spread > 0, E4M3_MAX / spread, F32(0))
    return PreparedHead(
        query_codes=encode(scaled_q),
        key_codes=encode(scaled_k),
        value_codes=encode((v - value_mean) * value_multiplier),
        query_columns=numpy.concatenate((q_low, q_high), 2),
        key_columns=numpy.concatenate((k_high, k_low), 2),
        value_scales=value_scale,
        value_means=value_mean,
        score_exponent=score_exponent,
        smoothing_shifts=scale * (q.astype(numpy.float64) @ mean),
    )


def pack_values(codes, in_denominator=True):
    """[keys, 128] codes as the library stores them: [blocks, 128 + 8, 128], permuted by 16.

    The last row of a block holds 1 for keys that count in the denominator; the residual columns
    before it are zero.
    """
    padded = numpy.zeros((-(-len(codes) // KEY_BLOCK) * KEY_BLOCK, VALUE_ROWS), numpy.uint8)
    padded[: len(codes), :HEAD_DIM] = codes
    if in_denominator:
        padded[: len(codes), HEAD_DIM + VALUE_COLUMNS :] = encode(1.0)
    order = [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15]  # key in each slot
    slots = padded.reshape(-1, KEY_GROUP, VALUE_ROWS)[:, order]
    return slots.reshape(-1, KEY_BLOCK, VALUE_ROWS).swapaxes(1, 2)


# ---- attention ---------------------------------------------------------------------------------


def scores(head):
    """Accumulated scores as binary16 values, [Sq, Skv] float64."""
    total = DECODED[head.query_codes] @ DECODED[head.key_codes].T
    for q, k in zip(head.query_columns, head.key_columns, strict=True):
        total = total + DECODED[q] @ DECODED[k].T
    return total.astype(numpy.float16).astype(numpy.float64)


def block_offsets(tops):
    """PEAK_CODE - top as a binary16 number of steps of 2^-24, in code units."""
    step = 2.0**-24
    return ((PEAK_CODE - tops) * step).astype(numpy.float16).astype(numpy.float64) / step


def probability_codes(block_scores, tops, plan, score_exponent):
    """ExpCast of the scores of one block, [rows, keys], whose largest scores are `tops`."""
    if plan.wide:
        with numpy.errstate(over="ignore"):  # far below the top: minus infinity
            below = (block_scores - tops[:, None]).astype(numpy.float16).astype(numpy.float64)
        x = below * 2.0**score_exponent + PEAK_CODE
    else:
        x = block_scores + block_offsets(tops)[:, None]
    return numpy.maximum(numpy.rint(numpy.maximum(x, -1024)), 0).astype(int)


def block_order(queries, keys, query_block, causal, mid_window):
    """Key blocks in the order of visit for the queries of one block."""
    last_query = min((query_block + 1) * QUERY_BLOCK, queries) - 1
    visible = min(last_query + 1 + keys - queries, keys) if causal else keys
    blocks = -(-max(visible, 0) // KEY_BLOCK)
    first = blocks - 1
    if mid_window and not causal:
        own = query_block * -(-keys // KEY_BLOCK) // -(-queries // QUERY_BLOCK)
        first = min(own + MID_WINDOW_BLOCKS, first)
    return [*range(first, -1, -1), *range(blocks - 1, first, -1)]


def attend(head, plan, causal=False, mid_window=True):
    """Output [Sq, 128] and LSE [Sq] in float64."""
    queries, keys = len(head.query_codes), len(head.key_codes)
    all_scores = scores(head)
    if causal:
        seen = numpy.arange(keys) <= numpy.arange(queries)[:, None] + keys - queries
        all_scores[~seen] = -numpy.inf
    values = DECODED[head.value_codes]
    out = numpy.zeros((queries, HEAD_DIM))
    lse = numpy.full(queries, -numpy.inf)
    for query_block in range(-(-queries // QUERY_BLOCK)):
        rows = slice(query_block * QUERY_BLOCK, (query_block + 1) * QUERY_BLOCK)
        order = block_order(queries, keys, query_block, causal, mid_window)
        out[rows], lse[rows] = _attend_rows(all_scores[rows], values, order, head, plan)
    seen = numpy.isfinite(lse)[:, None]
    lse += head.smoothing_shifts
    return numpy.where(seen, out * head.value_scales + head.value_means, 0), lse


def _attend_rows(block_scores, values, order, head, plan):
    """Every block is a softmax of its own; their sums meet relative to the running maximum."""
    octaves = 2.0**head.score_exponent / 8
    reference = numpy.full(len(block_scores), LEAST_TOP)
    total = numpy.zeros(len(block_scores))
    out = numpy.zeros((len(block_scores), HEAD_DIM))
    for block in order:
        keys = slice(block * KEY_BLOCK, (block + 1) * KEY_BLOCK)
        s = block_scores[:, keys]
        tops = numpy.maximum(s.max(1), LEAST_TOP)
        raised = numpy.maximum(reference, tops)
        rescale = 2.0 ** ((reference - raised) * octaves)
        weights = DECODED[probability_codes(s, tops, plan, head.score_exponent)]
        weights = weights * 2.0 ** ((tops - raised) * octaves)[:, None]
        total = total * rescale + weights.sum(1)
        out = out * rescale[:, None] + weights @ values[keys]
        reference = raised
    with numpy.errstate(divide="ignore", invalid="ignore"):
        lse = reference * octaves * numpy.log(2) + numpy.log(total) - numpy.log(448)
        return numpy.where(total[:, None] > 0, out / total[:, None], 0), lse
