# SPDX-License-Identifier: BSD-3-Clause
"""vc_attention(), prepare_vc() and attention_vc() as their users call them."""

from pathlib import Path

import numpy
import pytest
from conftest import softmax_attention

torch = pytest.importorskip("torch")

from open_vc_attn import load_capture  # noqa: E402
from open_vc_attn.baselines import (  # noqa: E402
    PreparedVC,
    VSmoothState,
    attention_vc,
    prepare_vc,
    vc,
    vc_attention,
)

SHAPES = [(1, 1), (5, 5), (63, 40), (128, 128), (129, 300), (300, 129)]
CAPTURE = (
    Path(__file__).resolve().parents[2] / "examples/captures/minidit_vtest_L0_sigma0.9.safetensors"
)
ERROR = 0.08  # unit variance and a flat softmax are the hardest for 8 bits


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def qkv(queries=150, keys=None, heads=2, batch=None, dtype=torch.bfloat16, seed=0):
    outer = () if batch is None else (batch,)
    lengths = queries, keys or queries, keys or queries
    return tuple(
        normal(*outer, n, heads, 128, seed=3 * seed + i).to(dtype) for i, n in enumerate(lengths)
    )


def error(found, q, k, v, scale=None):
    exact = softmax_attention(*(x.float().numpy() for x in (q, k, v)), scale=scale)[0]
    found = found.double().numpy()
    return numpy.linalg.norm(found - exact) / numpy.linalg.norm(exact)


def rows(quantized, head, count):
    """Decoded rows of Q or K, in float64."""
    codes, scale = quantized.codes[head].double(), quantized.scale[head].double()
    return (codes * scale[:, None]).numpy()[:count]


@pytest.mark.parametrize("queries, keys", SHAPES)
@pytest.mark.parametrize("v_smooth", [True, False])
def test_near_exact_attention(queries, keys, v_smooth):
    q, k, v = qkv(queries, keys)
    out = vc_attention(q, k, v, v_smooth=v_smooth)
    assert out.shape == q.shape and out.dtype == q.dtype and out.is_contiguous()
    assert error(out, q, k, v) < ERROR


@pytest.mark.parametrize("qk_format", ["int8", "e4m3"])
@pytest.mark.parametrize("probabilities", ["expcast", "exponential"])
def test_is_softmax_of_the_quantized_rows(qk_format, probabilities):
    """Everything but the weights' codes in float64, from what the preparation holds."""
    q, k, v = qkv(70, 300)
    prepared = prepare_vc(q.float(), k.float(), v.float(), qk_format=qk_format)
    out = attention_vc(prepared, probabilities=probabilities)
    for head in range(2):
        values = prepared.v.rows(head).double().numpy()[:300]
        a, b = rows(prepared.q, head, 70), rows(prepared.k, head, 300)
        expected = softmax_attention(a[:, None], b[:, None], values[:, None])[0][:, 0]
        found = out[:, head].double().numpy()
        close = numpy.linalg.norm(found - expected) / numpy.linalg.norm(expected)
        assert 1e-4 < close < 0.06  # E4M3 weights are all that is left


def test_permuted_keys_and_values_are_the_same_attention():
    """Sorting is exact: in float64 nothing but the order of sums changes."""
    q, k, v = qkv(50, 333)
    order = prepare_vc(q, k, v).permutation
    sorted_k, sorted_v = (
        torch.stack([x[order[head], head] for head in range(2)], 1).double() for x in (k, v)
    )
    exact = softmax_attention(q.double(), k.double(), v.double())[0]
    moved = softmax_attention(q.double(), sorted_k, sorted_v)[0]
    numpy.testing.assert_allclose(moved, exact, atol=1e-12)
    # and the prepared rows are those of the caller in this order
    prepared = prepare_vc(q, k, v, permutation=order)
    for head in range(2):
        found = prepared.v.rows(head).numpy()[:333]
        expected = sorted_v[:, head].numpy()
        assert numpy.linalg.norm(found - expected) < 0.04 * numpy.linalg.norm(expected)


def test_keys_lose_their_mean_and_are_rotated():
    q, k, v = qkv(200)
    k = (k.float() + 30 * normal(2, 128)).bfloat16()  # shared by all keys: softmax does not see it
    assert error(vc_attention(q, k, v), q, k, v) < ERROR
    q[..., 5] *= 20  # an outlier channel, which a rotation spreads
    k[..., 9] *= 3
    prepared = prepare_vc(q, k, v)
    found = rows(prepared.q, 0, 200)
    assert numpy.linalg.norm(found) == pytest.approx(float(q[:, 0].float().norm()), rel=1e-2)
    assert numpy.abs(found).max() < 0.5 * float(q[:, 0].abs().max())


def test_scales_are_shared_by_blocks():
    q, k, v = qkv(300)
    q[:128] *= 100
    scale = prepare_vc(q, k, v, qk_format="e4m3").q.scale
    assert scale.shape == (2, 384)
    blocks = scale.view(2, 3, 128)
    assert (blocks == blocks[..., :1]).all() and (blocks[:, 0] > 20 * blocks[:, 1]).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_batches_types_and_strides(dtype):
    q, k, v = qkv(140, batch=2, dtype=dtype)
    whole = vc_attention(q, k, v)
    assert whole.dtype == dtype
    for item in range(2):
        alone = vc_attention(q[item], k[item], v[item])
        torch.testing.assert_close(whole[item], alone, atol=0.02, rtol=0)
    spread = torch.stack([q, k, v], 3)  # strides of a fused projection
    strided = vc_attention(*(spread[:, :, :, i] for i in range(3)))
    assert torch.equal(strided, whole)


def test_softmax_scale():
    q, k, v = qkv(100)
    for scale in (0.01, 0.2):
        assert error(vc_attention(q, k, v, softmax_scale=scale), q, k, v, scale) < ERROR
    default = vc_attention(q, k, v)
    assert torch.equal(vc_attention(q, k, v, softmax_scale=128**-0.5), default)


def test_the_same_bits_in_every_call():
    q, k, v = qkv(500)
    assert torch.equal(vc_attention(q, k, v), vc_attention(q, k, v))


def test_queries_in_parts_are_the_same(monkeypatch):
    q, k, v = qkv(90, 200)
    whole = vc_attention(q, k, v)
    monkeypatch.setitem(vc._SCORES_AT_A_TIME, "cpu", 256 * 7)
    torch.testing.assert_close(vc_attention(q, k, v), whole, atol=1e-2, rtol=0)


def test_autocast_and_grad_mode_change_nothing():
    q, k, v = qkv(60)
    plain = vc_attention(q, k, v)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(vc_attention(q, k, v), plain)
    assert not plain.requires_grad


@pytest.mark.parametrize("value", [0.0, 3.0, -1e4])
def test_constant_values(value):
    q, k, _ = qkv(300)
    v = torch.full_like(q, value)
    out = vc_attention(q, k, v)
    assert torch.equal(out, v)  # an average of equal rows


def test_inputs_are_left_alone():
    tensors = qkv(130)
    copies = [x.clone() for x in tensors]
    vc_attention(*tensors)
    assert all(torch.equal(x, y) for x, y in zip(tensors, copies, strict=True))


def test_prepared_inputs():
    q, k, v = qkv(200, 300)
    prepared = prepare_vc(q, k, v)
    assert (prepared.shape, prepared.keys, prepared.dtype) == ((200, 2, 128), 300, torch.bfloat16)
    assert prepared.device.type == "cpu" and prepared.permutation.shape == (2, 300)
    assert prepared.q.codes.dtype == torch.int8 and prepared.nbytes > 2 * (256 + 2 * 384) * 128
    assert repr(prepared).startswith("PreparedVC(q=[200, 2, 128], keys=300, dtype=torch.bfloat16")
    assert torch.equal(attention_vc(prepared), vc_attention(q, k, v))
    given = vc_attention(q, k, v, permutation=prepared.permutation)
    assert torch.equal(given, attention_vc(prepared))
    plain = prepare_vc(q, k, v, v_smooth=False)
    assert plain.permutation is None and plain.v.means is None
    assert "sorted=False, demeaned=False" in repr(plain)


def test_captured_heads():
    """Smoothed values have less error than values as they come, in both heads."""
    capture = load_capture(CAPTURE)
    q, k, v = (torch.as_tensor(x) for x in (capture.q, capture.k, capture.v))
    smooth, plain = (prepare_vc(q, k, v, v_smooth=on) for on in (True, False))
    for head in range(2):
        exact = v[:, head].float()
        moved = smooth.v.rows(head)[: len(v)] - exact[smooth.permutation[head]]
        kept = plain.v.rows(head)[: len(v)] - exact
        assert float(moved.norm()) < 0.98 * float(kept.norm())


BAD = [
    (lambda q, k, v: vc_attention(q, k, v[:50]), ValueError, "expected k and v of one shape"),
    (lambda q, k, v: vc_attention(q[:, :1], k, v), ValueError, "batch and heads of q"),
    (
        lambda q, k, v: vc_attention(q[..., :64], k[..., :64], v[..., :64]),
        NotImplementedError,
        "expected 128 channels",
    ),
    (lambda q, k, v: vc_attention(q[:0], k, v), ValueError, "expected at least one token"),
    (lambda q, k, v: vc_attention(q, k[:0], v[:0]), ValueError, "expected at least one token"),
    (lambda q, k, v: vc_attention(q[0], k[0], v[0]), ValueError, "expected the layout"),
    (lambda q, k, v: vc_attention(q.float(), k, v), TypeError, "expected one for all three"),
    (lambda q, k, v: vc_attention(*(x.double() for x in (q, k, v))), TypeError, "float64"),
    (lambda q, k, v: vc_attention(*(x.float().numpy() for x in (q, k, v))), TypeError, "numpy"),
    (
        lambda q, k, v: vc_attention(q.float().requires_grad_(), k.float(), v.float()),
        ValueError,
        "q: requires grad",
    ),
    (lambda q, k, v: vc_attention(q, k, v, softmax_scale=0.0), ValueError, "softmax_scale: 0.0"),
    (
        lambda q, k, v: vc_attention(q, k, v, probabilities="exp"),
        ValueError,
        "probabilities: 'exp'; expected one of expcast, exponential",
    ),
    (
        lambda q, k, v: vc_attention(q, k, v, qk_format="fp8"),
        ValueError,
        "qk_format: 'fp8'; expected one of int8, e4m3",
    ),
    (lambda q, k, v: vc_attention(q, k, v, v_smooth=1), TypeError, "v_smooth: 1"),
    (lambda q, k, v: vc_attention(q, k, v, clusters=0), ValueError, "clusters: 0; expected 1 <="),
    (lambda q, k, v: vc_attention(q, k, v, clusters=257), ValueError, "clusters <= 256"),
    (lambda q, k, v: vc_attention(q, k, v, clusters=2.5), TypeError, "expected a whole number"),
    (lambda q, k, v: vc_attention(q, k, v, iterations=True), TypeError, "iterations: True"),
    (
        lambda q, k, v: vc_attention(q, k, v, v_smooth=False, iterations=3),
        ValueError,
        "iterations: given with v_smooth=False",
    ),
    (
        lambda q, k, v: vc_attention(q, k, v, permutation=torch.zeros(2, 60).long(), clusters=3),
        ValueError,
        "permutation: given with clusters",
    ),
    (
        lambda q, k, v: vc_attention(q, k, v, permutation=torch.zeros(2, 60).long()),
        ValueError,
        "permutation: a head lacks some rows",
    ),
    (
        lambda q, k, v: vc_attention(q, k, v, permutation=torch.zeros(1, 60).long()),
        ValueError,
        r"permutation: shape \[1, 60\] on cpu; expected \[2, 60\]",
    ),
    (
        lambda q, k, v: vc_attention(q, k, v, permutation=torch.zeros(2, 60)),
        TypeError,
        "permutation: torch.float32; expected a torch tensor of int64",
    ),
    (
        lambda q, k, v: vc_attention(q, k, v, permutation=[1]),
        TypeError,
        "permutation: list; expected a torch tensor of int64",
    ),
    (lambda q, k, v: vc_attention(q, k, v, state=3, layer=1), TypeError, "state: int; expected"),
    (
        lambda q, k, v: vc_attention(q, k, v, state=VSmoothState(4)),
        ValueError,
        "state, layer: state without the other",
    ),
    (
        lambda q, k, v: vc_attention(q, k, v, layer=1),
        ValueError,
        "state, layer: layer without the other",
    ),
    (
        lambda q, k, v: vc_attention(q, k, v, state=VSmoothState(4), layer=1, clusters=64),
        ValueError,
        "clusters: given with a state, which has its own",
    ),
    (
        lambda q, k, v: vc_attention(q, k, v, state=VSmoothState(4), layer=1, v_smooth=False),
        ValueError,
        "state: given with v_smooth=False",
    ),
    (lambda q, k, v: attention_vc(q), TypeError, "prepared: Tensor; expected a PreparedVC"),
    (
        lambda q, k, v: attention_vc(prepare_vc(q, k, v), probabilities=3),
        TypeError,
        "probabilities: int",
    ),
]


@pytest.mark.parametrize("call, kind, text", BAD)
def test_refusals(call, kind, text):
    with pytest.raises(kind, match=text):
        call(*qkv(60))


def test_a_refused_call_leaves_the_state():
    state = VSmoothState(8)
    state.begin_step(0)
    q, k, v = qkv(60)
    for wrong in ({"probabilities": "x"}, {"softmax_scale": -1.0}, {"qk_format": "x"}):
        with pytest.raises(ValueError):
            vc_attention(q, k, v, state=state, layer=0, **wrong)
    assert state.layers == []
    assert isinstance(prepare_vc(q, k, v, state=state, layer=0), PreparedVC)
