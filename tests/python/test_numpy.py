# SPDX-License-Identifier: BSD-3-Clause
"""NumPy arrays: element types, layouts and memory."""

import numpy
import pytest
from conftest import (
    GAUSSIAN_ERROR,
    HEAD_DIM,
    LSE_ERROR,
    as_bytes,
    random_qkv,
    relative_l2,
    softmax_attention,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import open_vc_attn
from open_vc_attn import attention


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
@pytest.mark.parametrize("batch", [None, 2])
def test_result_has_the_form_of_q(dtype, batch, request):
    if dtype == "bfloat16":
        dtype = request.getfixturevalue("bfloat16")
    q, k, v = random_qkv(33, 50, heads=3, batch=batch, dtype=dtype)
    out, lse = attention(q, k, v, return_lse=True)
    assert type(out) is numpy.ndarray
    assert (out.shape, out.dtype) == (q.shape, q.dtype)
    assert out.flags.c_contiguous and out.flags.writeable and out.flags.owndata
    assert lse.dtype == numpy.float32
    assert lse.shape == (*q.shape[:-3], 3, 33)
    expected, expected_lse = softmax_attention(q, k, v)
    assert relative_l2(out, expected) < GAUSSIAN_ERROR
    assert numpy.abs(lse - expected_lse).max() < LSE_ERROR


@pytest.mark.parametrize(
    "queries, keys", [(1, 1), (1, 300), (130, 1), (127, 129), (256, 128), (300, 77)]
)
@pytest.mark.parametrize("causal", [False, True])
def test_any_length(queries, keys, causal):
    q, k, v = random_qkv(queries, keys, heads=1)
    out, lse = attention(q, k, v, causal=causal, return_lse=True)
    expected, expected_lse = softmax_attention(q, k, v, causal)
    assert relative_l2(out, expected) < GAUSSIAN_ERROR
    unseen = numpy.isneginf(expected_lse)
    numpy.testing.assert_array_equal(numpy.isneginf(lse), unseen)
    assert numpy.abs(lse[~unseen] - expected_lse[~unseen]).max() < LSE_ERROR
    assert (out.swapaxes(0, 1)[unseen] == 0).all()


@pytest.mark.parametrize("scale", [0.02, 0.25, numpy.float32(0.1), numpy.array(0.1)])
def test_softmax_scale_is_honoured(scale):
    q, k, v = random_qkv()
    expected, _ = softmax_attention(q, k, v, scale=float(scale))
    assert relative_l2(attention(q, k, v, softmax_scale=scale), expected) < GAUSSIAN_ERROR


def test_batch_items_are_separate_calls():
    q, k, v = random_qkv(40, 30, batch=3)
    out, lse = attention(q, k, v, return_lse=True)
    for b in range(3):
        single, single_lse = attention(q[b], k[b], v[b], return_lse=True)
        assert as_bytes(out[b]) == as_bytes(single)
        assert as_bytes(lse[b]) == as_bytes(single_lse)


def heads_first(x):
    return numpy.ascontiguousarray(x.swapaxes(0, 1)).swapaxes(0, 1)


def fused_slice(x):
    wide = numpy.full((x.shape[0], 3, *x.shape[1:]), numpy.nan, x.dtype)
    wide[:, 1] = x
    return wide[:, 1]


def reversed_tokens(x):
    return numpy.ascontiguousarray(x[::-1])[::-1]


def reversed_heads(x):
    return numpy.ascontiguousarray(x[:, ::-1])[:, ::-1]


def every_second_token(x):
    wide = numpy.full((2 * x.shape[0], *x.shape[1:]), numpy.nan, x.dtype)
    wide[::2] = x
    return wide[::2]


def odd_address(x):
    buffer = numpy.empty(x.size + 1, x.dtype)
    view = buffer[1:].reshape(x.shape)
    view[...] = x
    return view


def read_only(x):
    copy = x.copy()
    copy.flags.writeable = False
    return copy


LAYOUTS = [
    heads_first,
    fused_slice,
    reversed_tokens,
    reversed_heads,
    every_second_token,
    odd_address,
    read_only,
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_layout_does_not_matter(layout, position):
    inputs = list(random_qkv(130, 130, dtype=numpy.float16))
    expected = attention(*inputs)
    inputs[position] = layout(inputs[position])
    assert as_bytes(attention(*inputs)) == as_bytes(expected)


@pytest.mark.parametrize("keys", [1, 33, 128, 129])
def test_expanded_keys_and_values(keys):
    q, k, v = random_qkv(20, keys, heads=4)
    k, v = (numpy.broadcast_to(x[:, :1], x.shape) for x in (k, v))
    expected = attention(q, k.copy(), v.copy())
    assert as_bytes(attention(q, k, v)) == as_bytes(expected)


def test_expanded_batch():
    q, k, v = random_qkv(20, 40)
    q = numpy.broadcast_to(q, (3, *q.shape))
    k, v = (numpy.broadcast_to(x, (3, *x.shape)) for x in (k, v))
    out = attention(q, k, v)
    assert as_bytes(out[0]) == as_bytes(out[2]) == as_bytes(attention(q[0], k[0], v[0]))


def test_strides_of_single_element_axes_do_not_matter():
    q, k, v = random_qkv(40, 40, heads=1)
    itemsize = q.dtype.itemsize
    odd = numpy.lib.stride_tricks.as_strided(
        q, q.shape, (HEAD_DIM * itemsize, 13 * itemsize, itemsize)
    )
    assert as_bytes(attention(odd, k, v)) == as_bytes(attention(q, k, v))


def test_neighbours_in_memory_do_not_matter():
    """Rows before, after and between the views hold NaN."""

    def poisoned(x):
        n, heads, _ = x.shape
        wide = numpy.full((n + 300, heads + 2, HEAD_DIM), numpy.nan, x.dtype)
        view = wide[150 : 150 + n, 1 : 1 + heads]
        view[...] = x
        return view

    q, k, v = random_qkv(77, 131, dtype=numpy.float16)
    out = attention(*(poisoned(x) for x in (q, k, v)))
    assert as_bytes(out) == as_bytes(attention(q, k, v))


def test_inputs_are_never_modified():
    inputs = random_qkv(60, 90)
    before = [as_bytes(x) for x in inputs]
    open_vc_attn.attention_v_repair(open_vc_attn.prepare_v_repair(*inputs, budget=0.1))
    attention(*inputs, return_lse=True)
    assert [as_bytes(x) for x in inputs] == before


def test_one_tensor_in_three_roles():
    q, _, _ = random_qkv(60)
    assert as_bytes(attention(q, q, q)) == as_bytes(attention(q, q.copy(), q.copy()))


@settings(max_examples=40, deadline=None)
@given(
    queries=st.integers(1, 40),
    keys=st.integers(1, 140),
    heads=st.integers(1, 3),
    axes=st.permutations([0, 1, 2]),
    signs=st.tuples(*[st.sampled_from([1, -1])] * 3),
    seed=st.integers(0, 3),
)
def test_any_order_of_axes(queries, keys, heads, axes, signs, seed):
    q, k, v = random_qkv(queries, keys, heads, batch=2, dtype=numpy.float16, seed=seed)

    def permuted(x):
        inverse = numpy.argsort(axes)
        steps = tuple(slice(None, None, sign) for sign in signs)
        stored = numpy.ascontiguousarray(x[steps].transpose(*axes, 3))
        return stored.transpose(*inverse, 3)[steps]

    inputs = [permuted(x) for x in (q, k, v)]
    numpy.testing.assert_array_equal(inputs[0], q)
    assert as_bytes(attention(*inputs)) == as_bytes(attention(q, k, v))
