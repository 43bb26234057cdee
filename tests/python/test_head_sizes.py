# SPDX-License-Identifier: BSD-3-Clause
"""Heads of fewer than 128 channels, and heads of queries that share those of keys."""

import numpy
import pytest
from conftest import GAUSSIAN_ERROR, LSE_ERROR, random_qkv, relative_l2, softmax_attention

from open_vc_attn import attention, attention_fp8, exact_attention, is_supported, prepare_fp8
from open_vc_attn._arrays import is_head_dim

SIZES = (8, 40, 64, 80, 96, 112, 120)


def repeated(x, times):
    return numpy.repeat(x, times, axis=-2)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("heads, key_heads", [(2, 2), (4, 2), (3, 1)])
def test_close_to_exact_attention(size, heads, key_heads):
    q, k, v = random_qkv(60, 150, heads, dtype=numpy.float16, key_heads=key_heads, head_dim=size)
    together = [repeated(x, heads // key_heads) for x in (k, v)]
    expected, expected_lse = softmax_attention(q, *together)
    out, lse = attention(q, k, v, return_lse=True)
    assert out.shape == q.shape
    assert relative_l2(out, expected) < GAUSSIAN_ERROR
    assert numpy.abs(lse - expected_lse).max() < LSE_ERROR
    exact, exact_lse = exact_attention(q, k, v, return_lse=True)
    assert relative_l2(exact, expected) < 1e-12 and relative_l2(exact_lse, expected_lse) < 1e-12


def test_preparation():
    q, k, v = random_qkv(60, 150, 4, 2, numpy.float16, key_heads=2, head_dim=64)
    prepared = prepare_fp8(q, k, v)
    assert (prepared.shapes.q, prepared.shapes.k) == (q.shape, k.shape)
    assert numpy.array_equal(attention_fp8(prepared), attention(q, k, v))


def test_strides():
    wide = numpy.ones((90, 3, 100), numpy.float16)
    q, k, v = random_qkv(90, 90, 3, dtype=numpy.float16, head_dim=72)
    wide[..., 13:85] = k
    assert numpy.array_equal(attention(q, wide[..., 13:85], v), attention(q, k, v))


def test_which_sizes_are_supported():
    supported = [n for n in range(140) if is_supported(*[numpy.ones((2, 1, n), "f4")] * 3)]
    assert supported == [n for n in range(140) if is_head_dim(n)]


def test_which_groups_are_supported():
    q = numpy.ones((2, 12, 64), numpy.float32)
    for heads in range(1, 14):
        k = numpy.ones((3, heads, 64), numpy.float32)
        assert bool(is_supported(q, k, k)) == (12 % heads == 0), heads


torch = pytest.importorskip("torch", minversion="2.4")

from torch._dynamo.testing import CompileCounter  # noqa: E402 - needs torch


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(dynamic):
    torch._dynamo.reset()
    counter = CompileCounter()

    def attend(q, k, v):
        return attention(q, k, v) if is_supported(q, k, v) else q

    compiled = torch.compile(attend, fullgraph=True, backend=counter, dynamic=dynamic)
    for queries, size, heads in ((20, 64, 4), (21, 80, 6), (22, 128, 2)):
        inputs = random_qkv(queries, 30, heads, 2, key_heads=2, head_dim=size)
        inputs = [torch.from_numpy(x).bfloat16() for x in inputs]
        assert torch.equal(compiled(*inputs), attention(*inputs))
    assert counter.frame_count == (1 if dynamic else 3)
