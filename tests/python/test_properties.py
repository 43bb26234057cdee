# SPDX-License-Identifier: BSD-3-Clause
"""Properties that every attention function has, whatever its arithmetic."""

import threading

import numpy
import pytest
from conftest import GAUSSIAN_ERROR, LSE_ERROR, as_bytes, random_qkv, relative_l2, softmax_attention
from hypothesis import given, settings
from hypothesis import strategies as st

import open_vc_attn
from open_vc_attn import Numerics, _openvc, attention, exact_attention
from open_vc_attn._numerics import OPTIONS


@settings(max_examples=25, deadline=None)
@given(
    queries=st.integers(1, 60),
    keys=st.integers(1, 300),
    value=st.floats(-300, 300, width=16),
    causal=st.booleans(),
)
def test_constant_values_give_the_constant(queries, keys, value, causal):
    q, k, v = random_qkv(queries, keys, heads=1, dtype=numpy.float16)
    out, lse = attention(q, k, numpy.full_like(v, value), causal=causal, return_lse=True)
    seen = ~numpy.isneginf(lse[0])
    assert (out[seen] == numpy.float16(value)).all()
    assert (out[~seen] == 0).all()


@settings(max_examples=15, deadline=None)
@given(keys=st.integers(2, 400), share=st.floats(0.05, 0.95), seed=st.integers(0, 9))
def test_key_shards_merge_by_lse(keys, share, seed):
    """What ring attention does: two softmaxes over parts of the keys, weighted by their LSE."""
    q, k, v = random_qkv(50, keys, seed=seed)
    cut = min(max(1, round(keys * share)), keys - 1)
    parts = [attention(q, k[s], v[s], return_lse=True) for s in (slice(cut), slice(cut, None))]
    lses = numpy.stack([lse for _, lse in parts])
    weights = numpy.exp(lses - numpy.logaddexp(*lses)).swapaxes(1, 2)[..., None]
    merged = sum(out * weight for (out, _), weight in zip(parts, weights, strict=True))
    expected, expected_lse = softmax_attention(q, k, v)
    whole = attention(q, k, v)
    assert relative_l2(merged, expected) < GAUSSIAN_ERROR
    assert relative_l2(merged, whole) < GAUSSIAN_ERROR
    assert numpy.abs(numpy.logaddexp(*lses) - expected_lse).max() < LSE_ERROR


def test_a_needle_is_found():
    q, k, v = random_qkv(8, 1000, heads=1)
    k[:] *= 0.1
    k[777] = q[3] * 4
    out = attention(q, k, v)
    assert relative_l2(out[3], v[777]) < 0.05


def test_order_of_keys_matters_little():
    q, k, v = random_qkv(64, 500)
    order = numpy.random.default_rng(1).permutation(500)
    assert relative_l2(attention(q, k[order], v[order]), attention(q, k, v)) < 0.05


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_repeatable_with_any_number_of_threads(threads):
    inputs = random_qkv(300, 400, heads=3, dtype=numpy.float16)
    expected, expected_lse = attention(*inputs, return_lse=True)
    open_vc_attn.set_num_threads(threads)
    try:
        assert open_vc_attn.get_num_threads() == threads
        out, lse = attention(*inputs, return_lse=True)
    finally:
        open_vc_attn.set_num_threads(0)
    assert as_bytes(out) == as_bytes(expected)
    assert as_bytes(lse) == as_bytes(expected_lse)


def test_concurrent_calls():
    """Calls from several Python threads, of different shapes, neither mix nor block each other."""
    jobs = [random_qkv(60 + 50 * n, 300 - 40 * n, seed=n) for n in range(4)]
    expected = [as_bytes(attention(*job)) for job in jobs]
    results = [[] for _ in jobs]
    start = threading.Barrier(len(jobs))

    def work(n):
        start.wait()
        for _ in range(5):
            results[n].append(as_bytes(attention(*jobs[n])))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert results == [[value] * 5 for value in expected]


def test_the_interpreter_runs_on_meanwhile():
    # Many times the millisecond of a step on any CPU; without the release there is no step at all.
    inputs = random_qkv(8000, 8000, heads=2)
    done = threading.Event()

    def work():
        attention(*inputs)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    steps = 0
    while not done.wait(0.001):
        steps += 1
    thread.join()
    assert steps > 3


@pytest.mark.parametrize("bad", [numpy.nan, numpy.inf, -numpy.inf])
@pytest.mark.parametrize("position", [0, 1, 2])
def test_non_finite_elements_stay_in_their_head_and_stay_visible(bad, position):
    inputs = random_qkv(150, 140, heads=3)
    expected = attention(*inputs)
    inputs[position][70, 1, 5] = bad
    out = attention(*inputs)
    assert not numpy.isfinite(out[:, 1]).all()
    assert as_bytes(out[:, [0, 2]]) == as_bytes(expected[:, [0, 2]])


@pytest.mark.parametrize("zeroed", [(0,), (1,), (2,), (0, 1), (0, 1, 2)])
def test_zero_inputs(zeroed):
    inputs = random_qkv(40, 200)
    for position in zeroed:
        inputs[position][...] = 0
    out, lse = attention(*inputs, return_lse=True)
    expected, expected_lse = softmax_attention(*inputs)
    assert numpy.isfinite(out).all()
    assert numpy.abs(out - expected).max() < 0.05
    assert numpy.abs(lse - expected_lse).max() < LSE_ERROR


@pytest.mark.parametrize("magnitude", [1e-30, 1e-6, 1e4, 1e30, 3e38])
def test_any_magnitude_of_values(magnitude):
    q, k, v = random_qkv(40, 200)
    v = (v / numpy.abs(v).max() * magnitude).astype(numpy.float32)
    expected, _ = softmax_attention(q, k, v)
    out = attention(q, k, v)
    assert numpy.isfinite(out).all()
    assert relative_l2(out / magnitude, expected / magnitude) < GAUSSIAN_ERROR


@pytest.mark.parametrize("factor", [10, 1000, 1e6, 1e18])
@pytest.mark.parametrize("sign", [1, -1])
def test_one_hot_softmax(factor, sign):
    """Scores far beyond the range of any 16-bit format."""
    q, k, v = random_qkv(40, 200)
    k[:40] = sign * q
    q *= numpy.float32(sign * factor)
    out, lse = attention(q, k, v, return_lse=True)
    assert numpy.isfinite(lse).all()
    assert relative_l2(out, v[:40]) < 0.05
    if factor <= 1e6:  # beyond, the exponent of the scores is capped
        numpy.testing.assert_allclose(lse, softmax_attention(q, k, v)[1], rtol=0.05, atol=0.1)


def values_of(option):
    if option.type_name != "float":
        return st.sampled_from(option.values)
    larger = min(option.default * 16, option.most)
    return st.sampled_from([option.least, option.default, larger])


@settings(max_examples=30, deadline=None)
@given(
    numerics=st.builds(Numerics, **{option.name: values_of(option) for option in OPTIONS}),
    key_order=st.sampled_from(_openvc.KEY_ORDERS),
)
def test_every_combination_of_numerics_is_sound(numerics, key_order):
    q, k, v = random_qkv(90, 280)
    out, lse = attention(q, k, v, return_lse=True, numerics=numerics, key_order=key_order)
    expected, expected_lse = softmax_attention(q, k, v)
    assert relative_l2(out, expected) < GAUSSIAN_ERROR
    assert numpy.abs(lse - expected_lse).max() < LSE_ERROR


def test_exact_attention_is_exact():
    q, k, v = random_qkv(30, 200, batch=2)
    out, lse = exact_attention(q, k, v, return_lse=True)
    expected, expected_lse = softmax_attention(q, k, v)
    assert out.dtype == lse.dtype == numpy.float64
    assert relative_l2(out, expected) < 1e-13
    assert numpy.abs(lse - expected_lse).max() < 1e-12


@pytest.mark.parametrize("causal", [False, True])
def test_exact_attention_of_some_rows(causal):
    q, k, v = random_qkv(50, 30)
    rows = [49, 0, 7, 7, 30]
    out, lse = exact_attention(q, k, v, rows, causal=causal, softmax_scale=0.3, return_lse=True)
    expected, expected_lse = softmax_attention(q, k, v, causal, 0.3)
    numpy.testing.assert_allclose(out, expected[rows], rtol=0, atol=1e-6)
    numpy.testing.assert_allclose(lse, expected_lse[:, rows], rtol=0, atol=1e-6)
