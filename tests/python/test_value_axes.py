# SPDX-License-Identifier: BSD-3-Clause
"""V on principal axes: attention leaves them again, whatever the rows look like."""

import numpy
import pytest

import open_vc_attn

KEYS = 4200  # enough for axes of V
QUERIES = 40
STRONG = 4


def inputs(dtype=numpy.float32, queries=QUERIES, seed=0):
    """Queries that find one key each, so that the output is a row of V; V with few strong axes."""
    generator = numpy.random.default_rng(seed)
    k = generator.standard_normal((KEYS, 2, 128), numpy.float32)
    q = 4 * k[:queries]
    strong = generator.standard_normal((KEYS, 2, STRONG), numpy.float32)
    axes = generator.standard_normal((STRONG, 128), numpy.float32)
    v = strong @ axes + 0.02 * generator.standard_normal((KEYS, 2, 128), numpy.float32) + 1
    return tuple(x.astype(dtype) for x in (q, k, v))


def error(qkv, choice, **options):
    out = open_vc_attn.attention(*qkv, numerics={"value_axes": choice}, **options)
    exact = open_vc_attn.exact_attention(*qkv, **options)
    return float(numpy.linalg.norm(out - exact) / numpy.linalg.norm(exact))


@pytest.mark.parametrize("dtype", [numpy.float32, numpy.float16])
def test_strong_axes_have_residual_columns(dtype):
    qkv = inputs(dtype)
    assert error(qkv, "always") < 0.25 * error(qkv, "never")


def test_long_calls_take_axes_by_themselves():
    q, k, v = (x[:, :1] for x in inputs())
    short = numpy.tile(q, (1500, 1, 1))  # 60,000 queries: 2^27.9 scores
    long = numpy.tile(q, (1600, 1, 1))

    def call(queries, choice):
        return open_vc_attn.attention(queries, k, v, numerics={"value_axes": choice})

    assert numpy.array_equal(call(long, "automatic"), call(long, "always"))
    assert numpy.array_equal(call(short, "automatic"), call(short, "never"))


def test_causal_calls_and_rows_without_keys():
    q, k, v = inputs(queries=KEYS)
    q, k, v = q[:, :1], k[-KEYS:, :1], v[:, :1]
    few = slice(0, 4100)  # more queries than keys: the first 100 see none
    rows = [100, 101, 250, KEYS - 1]
    exact = open_vc_attn.exact_attention(q, k[few], v[few], rows, causal=True)
    errors = {}
    for choice in ("always", "never"):
        numerics = {"value_axes": choice}
        out = open_vc_attn.attention(q, k[few], v[few], causal=True, numerics=numerics)
        assert (out[:100] == 0).all() and (out[100:] != 0).any()
        errors[choice] = numpy.linalg.norm(out[rows] - exact, axis=(1, 2))
    assert (errors["always"] < errors["never"]).all()


def test_white_values_and_short_calls_stay_off_axes():
    generator = numpy.random.default_rng(1)
    q, k, v = (generator.standard_normal((n, 1, 128), numpy.float32) for n in (8, KEYS, KEYS))
    long = numpy.tile(q, (8000, 1, 1))  # enough scores for axes, were V not white

    def call(queries, keys, choice):
        numerics = {"value_axes": choice}
        return open_vc_attn.attention(queries, k[:keys], v[:keys], numerics=numerics)

    never = call(long, KEYS, "never")
    assert numpy.array_equal(call(long, KEYS, "automatic"), never)
    assert not numpy.array_equal(call(long, KEYS, "always"), never)
    assert numpy.array_equal(call(q, 300, "always"), call(q, 300, "never"))


def test_sections_show_the_bases():
    numerics = {"value_axes": "always"}
    sections = open_vc_attn.prepare_fp8(*inputs(), numerics=numerics)._sections()
    bases = sections["value_bases"]
    assert bases.shape == (2, 128, 136)
    assert (sections["head_rules"][:, 2] & 2 == 2).all()
    terms = (bases.astype(numpy.uint32) << 16).view(numpy.float32).astype(numpy.float64)
    basis = terms[:, :, :128]  # [head][channel][axis], the mixed ones rounded to bfloat16
    basis[:, :, :8] += terms[:, :, 128:]
    assert numpy.abs(basis @ basis.transpose(0, 2, 1) - numpy.eye(128)).max() < 2e-3
