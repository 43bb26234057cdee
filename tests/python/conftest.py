# SPDX-License-Identifier: BSD-3-Clause
"""Inputs and references that the tests share."""

import signal

import numpy
import pytest

HEAD_DIM = 128

# Unit-variance inputs with flat softmax are the hardest of all for 8 bits, about
# 6 % (docs/numerics.md).
GAUSSIAN_ERROR = 0.08
# One code is 0.087 nats; a row that sees a single key has its rounding unaveraged.
LSE_ERROR = 0.09


def pytest_configure():
    """Ctrl-C ends a call, also in a run in the background, which shells start without SIGINT."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def torch():
    """torch, or a skipped test without it."""
    return pytest.importorskip("torch")


@pytest.fixture
def bfloat16():
    """NumPy's bfloat16, or a skipped test without ml_dtypes."""
    return pytest.importorskip("ml_dtypes").bfloat16


def random_qkv(
    queries=70,
    keys=None,
    heads=2,
    batch=None,
    dtype=numpy.float32,
    seed=0,
    key_heads=None,
    head_dim=HEAD_DIM,
):
    """Q, K and V of unit variance, [S, H, D] or [B, S, H, D]."""
    generator = numpy.random.default_rng(seed)
    outer = () if batch is None else (batch,)
    of_keys = keys or queries, key_heads or heads
    return tuple(
        generator.standard_normal((*outer, *sizes, head_dim), numpy.float32).astype(dtype)
        for sizes in ((queries, heads), of_keys, of_keys)
    )


def softmax_attention(q, k, v, causal=False, scale=None):
    """Attention and LSE in float64, with NumPy alone; [.., S, H, D]."""
    q, k, v = (numpy.asarray(x).astype(numpy.float64).swapaxes(-2, -3) for x in (q, k, v))
    logits = (q @ k.swapaxes(-1, -2)) * (scale or q.shape[-1] ** -0.5)
    if causal:
        queries, keys = logits.shape[-2:]
        visible = numpy.arange(keys) <= numpy.arange(queries)[:, None] + keys - queries
        logits = numpy.where(visible, logits, -numpy.inf)
    peak = logits.max(-1, keepdims=True)
    peak = numpy.where(numpy.isfinite(peak), peak, 0)
    weights = numpy.exp(logits - peak)
    total = weights.sum(-1, keepdims=True)
    with numpy.errstate(divide="ignore", invalid="ignore"):
        out = numpy.where(total > 0, (weights / total) @ v, 0)
        lse = (numpy.log(total) + peak)[..., 0]
    return out.swapaxes(-2, -3), lse


def relative_l2(found, expected):
    """|found - expected| / |expected| over all elements."""
    found, expected = (numpy.asarray(x).astype(numpy.float64) for x in (found, expected))
    return numpy.linalg.norm(found - expected) / numpy.linalg.norm(expected)


def as_bytes(array):
    """The bytes of an array, for bitwise comparison."""
    return numpy.ascontiguousarray(array).tobytes()
