# SPDX-License-Identifier: BSD-3-Clause
"""The library against an independent implementation of its numerics contract."""

import contract_oracle as oracle
import numpy
import pytest
from conftest import random_qkv, relative_l2
from hypothesis import given, settings
from hypothesis import strategies as st
from test_safetensors import EXAMPLE

import open_vc_attn
from open_vc_attn import Numerics, _safetensors

SCALE = 128**-0.5
END_TO_END = 1e-3
END_TO_END_OF_LARGE = 1e-2
"""Where scores are thousands of code units, binary16 is coarse: a sum next to one of its ties that
rounds the other way moves a weight by several codes."""
# Scores are bounded, not exact: now and then the offset of a block rounds to the other side, and
# all its codes but that of the largest score with it. One code is 0.087 nats.
LSE_ERROR = 2e-3
LSE_ERROR_OF_FEW = 0.09
FEW = 0.02
# Scores of narrow heads: a bound of 512 on the exact ones, and what rounding adds.
NARROW_LIMIT = 512 * 1.0625**2 * 1.125


def peaked_qkv(queries, keys, seed, sharpness=6.0):
    """Energy in few channels, a token mean in K and V, some channels of V constant or zero."""
    generator = numpy.random.default_rng(seed)
    q, k, v = random_qkv(queries, keys, heads=1, seed=seed)
    gain = numpy.exp(generator.standard_normal(128)).astype(numpy.float32)
    q, k = q * gain * numpy.float32(sharpness**0.5), k * gain
    k = k + generator.standard_normal(128).astype(numpy.float32) * 3
    v = v * gain + generator.standard_normal(128).astype(numpy.float32)
    v[..., 5], v[..., 9] = 0, 2.5
    return q, k, v


def tailed_qkv(queries, keys, seed, distance=10.7):
    """One key far above all others, whose mass lies where E4M3 is subnormal or below."""
    q, k, v = random_qkv(queries, keys, heads=1, seed=seed)
    direction = numpy.zeros(128, numpy.float32)
    direction[:4] = (128 * 0.5) ** 0.5 / 2
    q = q * numpy.float32(0.3) + direction
    k = k * numpy.float32(0.3)
    k[7] = direction * numpy.float32(distance / SCALE / 64)
    return q, k, v + (numpy.arange(keys) != 7)[:, None, None].astype(numpy.float32) * 10


def rising_qkv(queries, keys, nats):
    """Scores that rise by so many nats from one key block to the next."""
    q, k, v = random_qkv(queries, keys, heads=1, seed=6)
    q[..., 0] = 16
    k[..., 0] = (nats / SCALE / 16 * (numpy.arange(keys) // 128))[:, None]
    return q, k, v


def example_head(head, tokens):
    """Part of the shipped capture."""
    tensors, _ = _safetensors.load(EXAMPLE)

    def floats(name):
        raw = numpy.frombuffer(tensors[name].data, numpy.uint16).astype(numpy.uint32) << 16
        whole = raw.view(numpy.float32).reshape(tensors[name].shape)
        return numpy.ascontiguousarray(whole[:tokens, head : head + 1])

    return floats("q"), floats("k"), floats("v")


LARGE_SCORES = 1500.0
"""Code units."""
INPUTS = {
    "gaussian": lambda: random_qkv(300, 700, heads=1),
    "one": lambda: random_qkv(1, 1, heads=1),
    "tail": lambda: random_qkv(130, 129, heads=1),
    "peaked": lambda: peaked_qkv(280, 640, seed=1),
    "sharp": lambda: peaked_qkv(140, 900, seed=2, sharpness=80.0),
    "tailed": lambda: tailed_qkv(140, 900, seed=4),
    "wide": lambda: peaked_qkv(140, 300, seed=3, sharpness=4000.0),
    "rising": lambda: rising_qkv(140, 700, nats=89.0),
    "falling": lambda: rising_qkv(140, 700, nats=-400.0),
    "capture 0": lambda: example_head(0, 900),
    "capture 1": lambda: example_head(1, 400),
}
NUMERICS = {
    "default": {},
    "plain": dict(rotation="never", max_extra_steps=0),
    "rotated": dict(rotation="always", max_extra_steps=0),
    "columns": dict(rotation="never", max_extra_steps=4, score_error_target=0.0),
    "one step": dict(rotation="never", max_extra_steps=1, score_error_target=0.0),
    "bare": dict(smooth_keys=False, smooth_values=False, value_scale="per_head"),
}


def is_wide(prepared):
    return bool(prepared._sections()["head_rules"][0][2] & 1)


def oracle_for(q, k, v, prepared, numerics, scale=SCALE):
    (plan,) = prepared.plans
    decided = oracle.Plan(plan.extra_steps, plan.rotated, is_wide(prepared))
    head = oracle.prepare(
        q[:, 0],
        k[:, 0],
        v[:, 0],
        scale,
        decided,
        smooth_keys=numerics.smooth_keys,
        smooth_values=numerics.smooth_values,
        per_head_scale=numerics.value_scale == "per_head",
    )
    return decided, head


def test_contract_version():
    assert open_vc_attn.info()["contract_version"] == oracle.CONTRACT_VERSION


@pytest.mark.parametrize("numerics", NUMERICS.values(), ids=NUMERICS.keys())
@pytest.mark.parametrize("inputs", INPUTS.values(), ids=INPUTS.keys())
def test_prepared_bytes(inputs, numerics):
    q, k, v = inputs()
    numerics = Numerics(**numerics)
    prepared = open_vc_attn.prepare_fp8(q, k, v, with_lse=True, numerics=numerics)
    (plan,) = prepared.plans
    _, head = oracle_for(q, k, v, prepared, numerics)
    found = prepared._sections()

    assert plan.score_exponent == head.score_exponent
    numpy.testing.assert_array_equal(
        found["head_rules"][0],
        [plan.score_exponent, plan.extra_steps, found["head_rules"][0][2], 0],
    )
    if not is_wide(prepared):
        assert numpy.abs(oracle.scores(head)).max() <= NARROW_LIMIT
    for name, rows in (("query", len(q)), ("key", len(k))):
        codes = found[f"{name}_codes"][0]
        numpy.testing.assert_array_equal(codes[:rows], getattr(head, f"{name}_codes"))
        columns = found[f"{name}_columns"][:, 0]
        assert not columns[plan.extra_steps :].any()
        last = rows - 1
        for padded in (codes, *columns):
            assert (padded[rows:] == (padded[last] if name == "key" else 0)).all()
        numpy.testing.assert_array_equal(
            columns[: plan.extra_steps, :rows], getattr(head, f"{name}_columns")
        )
    packed = found["value_codes"][0]
    numpy.testing.assert_array_equal(packed, oracle.pack_values(head.value_codes))
    numpy.testing.assert_array_equal(found["value_scales"][0], head.value_scales)
    numpy.testing.assert_array_equal(found["value_means"][0], head.value_means)
    shifts = found["smoothing_shifts"][0]
    numpy.testing.assert_allclose(shifts, head.smoothing_shifts, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("numerics", NUMERICS.values(), ids=NUMERICS.keys())
@pytest.mark.parametrize("inputs", INPUTS.values(), ids=INPUTS.keys())
@pytest.mark.parametrize("options", [{}, dict(causal=True), dict(key_order="descending")])
def test_end_to_end(inputs, numerics, options):
    q, k, v = inputs()
    numerics = Numerics(**numerics)
    prepared = open_vc_attn.prepare_fp8(q, k, v, with_lse=True, numerics=numerics, **options)
    out, lse = open_vc_attn.attention_fp8(prepared, return_lse=True)
    decided, head = oracle_for(q, k, v, prepared, numerics)
    expected, expected_lse = oracle.attend(
        head, decided, options.get("causal", False), options.get("key_order") != "descending"
    )
    large = numpy.abs(oracle.scores(head)).max() * 2.0**head.score_exponent > LARGE_SCORES
    assert relative_l2(out[:, 0], expected) < (END_TO_END_OF_LARGE if large else END_TO_END)
    seen = numpy.isfinite(expected_lse)
    numpy.testing.assert_array_equal(numpy.isfinite(lse[0]), seen)
    errors = numpy.abs(lse[0][seen] - expected_lse[seen]) - 1e-5 * numpy.abs(expected_lse[seen])
    assert errors.max() < LSE_ERROR_OF_FEW
    assert (errors > LSE_ERROR).mean() < FEW


@pytest.mark.parametrize("steps", [1, 2, 4])
@pytest.mark.parametrize("name", ["peaked", "sharp", "capture 0", "capture 1"])
def test_scores_on_principal_axes(name, steps):
    """Codes on axes are judged by the scores that they give: the matrix itself cancels."""
    q, k, v = INPUTS[name]()
    errors = {}
    for rotation in ("never", "always"):
        numerics = Numerics(rotation=rotation, max_extra_steps=steps, score_error_target=0.0)
        prepared = open_vc_attn.prepare_fp8(q, k, v, numerics=numerics)
        (plan,) = prepared.plans
        assert plan.extra_steps == steps
        assert plan.rotated == (rotation == "always")
        found = prepared._sections()

        def decoded(tensor, rows, found=found):
            parts = [found[f"{tensor}_codes"][0, :rows], *found[f"{tensor}_columns"][:, 0, :rows]]
            return oracle.DECODED[numpy.concatenate(parts, axis=1)]

        scores = decoded("query", len(q)) @ decoded("key", len(k)).T * 2.0**plan.score_exponent
        wide_q, wide_k = q[:, 0].astype(numpy.float64), k[:, 0].astype(numpy.float64)
        exact = wide_q @ (wide_k - wide_k.mean(0)).T * SCALE * float(oracle.CODE_UNITS_PER_NAT)
        errors[rotation] = numpy.sqrt(numpy.mean((scores - exact) ** 2))
        # What the prediction leaves out: products of two residuals, the rounding of the basis.
        products = numpy.sqrt(numpy.mean((numpy.abs(wide_q) @ numpy.abs(wide_k).T) ** 2))
        floor = 4e-3 * products * SCALE * float(oracle.CODE_UNITS_PER_NAT)
        assert errors[rotation] < 1.5 * plan.predicted_score_error + floor
    # At four steps both leave next to nothing of a code unit.
    assert errors["always"] < max(1.3 * errors["never"], 0.1)


@settings(max_examples=25, deadline=None)
@given(
    queries=st.integers(1, 520),
    keys=st.integers(1, 520),
    seed=st.integers(0, 99),
    sharpness=st.floats(0.01, 200),
    scale=st.floats(0.003, 3),
    causal=st.booleans(),
)
def test_any_shape_and_scale(queries, keys, seed, sharpness, scale, causal):
    q, k, v = peaked_qkv(queries, keys, seed, sharpness)
    prepared = open_vc_attn.prepare_fp8(q, k, v, causal=causal, softmax_scale=scale)
    decided, head = oracle_for(q, k, v, prepared, Numerics(), scale)
    found = prepared._sections()
    numpy.testing.assert_array_equal(found["query_codes"][0, :queries], head.query_codes)
    numpy.testing.assert_array_equal(found["key_codes"][0, :keys], head.key_codes)
    numpy.testing.assert_array_equal(found["value_means"][0], head.value_means)
    expected, _ = oracle.attend(head, decided, causal)
    assert relative_l2(open_vc_attn.attention_fp8(prepared)[:, 0], expected) < END_TO_END


def test_repair_rows_hold_the_largest_residuals():
    q, k, v = peaked_qkv(140, 300, seed=5)
    prepared = open_vc_attn.prepare_v_repair(q, k, v, budget=0.1)
    _, head = oracle_for(q, k, v, prepared, Numerics())
    found = prepared._sections()
    rows = 30
    assert prepared.repair_rows == rows
    spread = head.value_scales * oracle.E4M3_MAX
    multiplier = numpy.divide(
        oracle.E4M3_MAX, spread, out=numpy.zeros_like(spread), where=spread > 0
    )
    coordinate = (v[:, 0] - head.value_means) * multiplier
    residual = (coordinate - oracle.DECODED[head.value_codes]).astype(numpy.float32)
    energy = numpy.square(residual.astype(numpy.float64) * head.value_scales).sum(1)
    tokens = numpy.sort(numpy.argsort(-energy, kind="stable")[:rows])
    extra = found["key_codes"][0, 384:]
    numpy.testing.assert_array_equal(extra[:rows], head.key_codes[tokens])
    assert (extra[rows:] == extra[rows - 1]).all()
    repaired = oracle.pack_values(oracle.encode(residual[tokens]), in_denominator=False)
    numpy.testing.assert_array_equal(found["value_codes"][0, 3:], repaired)


@pytest.mark.parametrize("key_order", ["mid_window", "descending"])
def test_order_of_key_blocks_does_not_matter(key_order):
    """Codes depend on their own block: other orders of the same blocks change binary32 sums alone."""
    bare = Numerics(smooth_keys=False, smooth_values=False, rotation="never", max_extra_steps=0)
    for sharpness in (0.2, 4.0, 400.0):
        q, k, v = peaked_qkv(150, 640, seed=8, sharpness=sharpness)
        out, lse = open_vc_attn.attention_fp8(
            open_vc_attn.prepare_fp8(q, k, v, with_lse=True, numerics=bare), return_lse=True
        )
        moved = numpy.concatenate([numpy.arange(128) + 128 * b for b in (3, 0, 4, 2, 1)])
        prepared = open_vc_attn.prepare_fp8(
            q, k[moved], v[moved], with_lse=True, numerics=bare, key_order=key_order
        )
        again, lse_again = open_vc_attn.attention_fp8(prepared, return_lse=True)
        numpy.testing.assert_allclose(again, out, rtol=1e-4, atol=1e-5 * numpy.abs(out).max())
        numpy.testing.assert_allclose(lse_again, lse, rtol=1e-6, atol=1e-5)


def test_log_sum_exp_has_no_bias():
    """ExpCast alone, against float64 on the same quantised scores."""
    for nats in (1.0, 2.0, 4.0):
        q, k, v = random_qkv(96, 4096, heads=1, seed=9)
        prepared = open_vc_attn.prepare_fp8(q * numpy.float32(nats), k, v, with_lse=True)
        _, lse = open_vc_attn.attention_fp8(prepared, return_lse=True)
        _, head = oracle_for(q * numpy.float32(nats), k, v, prepared, Numerics())
        logits = oracle.scores(head) * 2.0**head.score_exponent * numpy.log(2) / 8
        top = logits.max(1)
        exact = top + numpy.log(numpy.exp(logits - top[:, None]).sum(1)) + head.smoothing_shifts
        errors = lse[0] - exact
        assert numpy.sqrt(numpy.square(errors).mean()) < 0.005
        assert abs(errors.mean()) < 0.002


def test_e4m3_codec_of_the_oracle():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = numpy.random.default_rng(0).standard_normal(100_000).astype(numpy.float32)
    x = numpy.concatenate((x * numpy.exp2(numpy.arange(100_000) % 40 - 25), oracle.DECODED[:127]))
    ties = (oracle.DECODED[:126] + oracle.DECODED[1:127]) / 2
    x = numpy.concatenate((x, ties, -ties)).astype(numpy.float32)
    expected = x.clip(-448, 448).astype(ml_dtypes.float8_e4m3fn).view(numpy.uint8)
    numpy.testing.assert_array_equal(oracle.encode(x), expected)
