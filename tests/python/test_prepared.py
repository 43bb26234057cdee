# SPDX-License-Identifier: BSD-3-Clause
"""Preparation and attention as two calls."""

import threading

import numpy
import pytest
from conftest import as_bytes, random_qkv, relative_l2, softmax_attention

import open_vc_attn
from open_vc_attn import (
    HeadPlan,
    Numerics,
    attention,
    attention_fp8,
    attention_v_repair,
    prepare_fp8,
    prepare_v_repair,
)

OPTIONS = [
    {},
    dict(causal=True),
    dict(softmax_scale=0.2, key_order="descending"),
    dict(numerics=Numerics(rotation="always")),
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("batch", [None, 2])
def test_two_calls_equal_one(options, batch):
    inputs = random_qkv(140, 150, batch=batch, dtype=numpy.float16)
    out, lse = attention(*inputs, return_lse=True, **options)
    prepared = prepare_fp8(*inputs, with_lse=True, **options)
    for _ in range(2):
        again, lse_again = attention_fp8(prepared, return_lse=True)
        assert as_bytes(again) == as_bytes(out) == as_bytes(attention_fp8(prepared))
        assert as_bytes(lse_again) == as_bytes(lse)
        assert (again.shape, again.dtype) == (out.shape, out.dtype)


def test_properties():
    q, k, v = random_qkv(40, 50, heads=3, batch=2, dtype=numpy.float16)
    prepared = prepare_fp8(q, k, v, with_lse=True)
    assert prepared.shapes == (q.shape, k.shape, v.shape)
    assert prepared.shapes.k == (2, 50, 3, 128)
    assert (prepared.dtype, prepared.device) == (numpy.float16, "cpu")
    assert prepared.has_lse and prepared.repair_rows == 0
    assert prepared.nbytes >= q.size + k.size + v.size
    assert len(prepared.plans) == 6
    assert all(isinstance(plan, HeadPlan) for plan in prepared.plans)
    assert "q=[2, 40, 3, 128]" in repr(prepared)


@pytest.mark.parametrize("name", ["shapes", "dtype", "plans", "nbytes", "_native", "other"])
def test_frozen(name):
    prepared = prepare_fp8(*random_qkv(4))
    with pytest.raises(AttributeError):
        setattr(prepared, name, None)


def test_independent_of_the_tensors_it_was_made_from():
    inputs = random_qkv(60)
    prepared = prepare_fp8(*inputs)
    expected = as_bytes(attention_fp8(prepared))
    for x in inputs:
        x[...] = numpy.nan
    assert as_bytes(attention_fp8(prepared)) == expected


def test_shared_between_threads():
    prepared = prepare_fp8(*random_qkv(200))
    expected = as_bytes(attention_fp8(prepared))
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(as_bytes(attention_fp8(prepared))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert results == [expected] * 4


def test_no_repair_equals_plain_attention_bit_for_bit():
    inputs = random_qkv(100, 130)
    prepared = prepare_v_repair(*inputs, budget=0, with_lse=True)
    out, lse = attention_v_repair(prepared, return_lse=True)
    expected, expected_lse = attention(*inputs, return_lse=True)
    assert prepared.repair_rows == 0
    assert as_bytes(out) == as_bytes(expected)
    assert as_bytes(lse) == as_bytes(expected_lse)


def test_repair_lowers_the_error_of_values():
    q, k, v = random_qkv(100, 400, heads=1)
    v[::16] *= 20
    expected, _ = softmax_attention(q, k, v)
    errors = []
    for budget in (0, 1 / 16, 0.5, 0.99):
        prepared = prepare_v_repair(q, k, v, budget=budget)
        assert prepared.repair_rows == round(budget * 400)
        errors.append(relative_l2(attention_v_repair(prepared), expected))
    assert errors[1] < errors[0]
    assert errors[3] < errors[0]


def test_repair_leaves_the_denominator_alone():
    inputs = random_qkv(100, 400)
    _, expected = attention(*inputs, return_lse=True)
    prepared = prepare_v_repair(*inputs, budget=0.2, with_lse=True)
    _, lse = attention_v_repair(prepared, return_lse=True)
    assert as_bytes(lse) == as_bytes(expected)


def test_cannot_be_made_by_hand():
    with pytest.raises(TypeError):
        open_vc_attn.PreparedFP8()
