# SPDX-License-Identifier: BSD-3-Clause
"""Calls that went wrong in other attention functions, on the CPU and on a GPU.

docs/field_cases.md lists all such cases with the tests that cover them; here are those that no other
test covers on both devices.
"""

import numpy
import pytest
from conftest import GAUSSIAN_ERROR, LSE_ERROR, random_qkv, relative_l2, softmax_attention

import open_vc_attn
from open_vc_attn import attention, attention_fp8, is_supported, prepare_fp8

torch = pytest.importorskip("torch")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    return request.param


def tensors(device, *shape, dtype=torch.bfloat16, **options):
    return tuple(torch.from_numpy(x).to(device, dtype) for x in random_qkv(*shape, **options))


def to_numpy(tensor):
    return tensor.detach().cpu().double().numpy()


def exact(q, k, v, causal=False, scale=None):
    """Output and LSE in float64."""
    return softmax_attention(to_numpy(q), to_numpy(k), to_numpy(v), causal, scale)


def error_of(out, q, k, v, **options):
    assert torch.isfinite(out).all()
    return relative_l2(to_numpy(out), exact(q, k, v, **options)[0])


# Field cases A05, A07, A14: what lies behind the last key of a buffer is never read.
@pytest.mark.parametrize("keys", [1, 63, 77, 127, 137, 256])
def test_spare_rows_of_a_buffer(device, keys):
    q, k, v = tensors(device, 50, keys)
    buffers = [torch.full((keys + 150, *x.shape[1:]), torch.nan).to(x) for x in (k, v)]
    for buffer, x in zip(buffers, (k, v), strict=True):
        buffer[:keys] = x
    out = attention(q, *(buffer[:keys] for buffer in buffers))
    assert torch.isfinite(out).all()
    assert torch.equal(out, attention(q, k, v))


# Field case A11: no keys or no queries.
@pytest.mark.parametrize("empty", ["queries", "keys", "batch"])
def test_empty_tensors(device, empty):
    q, k, v = tensors(device, 20, 30, batch=2)
    if empty == "queries":
        q = q[:, :0]
    elif empty == "keys":
        k, v = k[:, :0], v[:, :0]
    else:
        q, k, v = q[:0], k[:0], v[:0]
    for causal in (False, True):
        with pytest.raises(ValueError, match="axis of size 0"):
            attention(q, k, v, causal=causal)
    assert not is_supported(q, k, v)


# Field case A15: lengths beyond those where others turned into noise.
def test_needles_in_a_long_sequence(device):
    keys, places = 200_064, [0, 99_865, 165_000, 200_063]
    generator = torch.Generator().manual_seed(3)
    q = torch.randn(len(places), 1, 128, generator=generator)
    k, v = (torch.randn(keys, 1, 128, generator=generator) for _ in range(2))
    k[places] = 3 * q
    out = attention(*(x.to(device, torch.bfloat16) for x in (q, k, v)))
    for row, place in enumerate(places):
        assert relative_l2(to_numpy(out[row]), v[place].numpy()) < 0.05, place


# Field cases B01 and B02: scales of zero.
def test_zero_channels_and_rows(device):
    q, k, v = tensors(device, 100, 300)
    v[..., 17] = 0
    k[50:200] = 0
    q[10:20] = 0
    out = attention(q, k, v)
    assert (out[..., 17] == 0).all()
    assert error_of(out, q, k, v) < GAUSSIAN_ERROR


# Field cases B03 and B19: the smallest and the largest numbers of bfloat16.
@pytest.mark.parametrize("magnitude", [1e-30, 1e-6, 1e4, 5e5, 1e30, 3e38])
def test_magnitude_of_values(device, magnitude):
    q, k, v = tensors(device, 40, 200)
    v = (v.float() / v.abs().max().float() * magnitude).bfloat16()
    out = attention(q, k, v)
    assert torch.isfinite(out).all()
    expected, _ = exact(q, k, v)
    assert relative_l2(to_numpy(out) / magnitude, expected / magnitude) < GAUSSIAN_ERROR


# Field case B04: every score far below any finite start of a running maximum.
@pytest.mark.parametrize("smooth_keys", [True, False])
def test_all_scores_hugely_negative(device, smooth_keys):
    q, k, v = tensors(device, 40, 300)
    q[:], k[:] = 448, -1880
    v += 1
    out, lse = attention(q, k, v, numerics={"smooth_keys": smooth_keys}, return_lse=True)
    mean = to_numpy(v).mean(0)
    assert relative_l2(to_numpy(out), numpy.broadcast_to(mean, out.shape)) < 0.02
    assert torch.isfinite(lse).all()


# Field case B05: the first key block that a query visits has no key for it, and all scores are
# negative.
def test_causal_block_without_a_key(device):
    q, k, v = (x.abs() for x in tensors(device, 88, 448))
    out = attention(q, -k, v, causal=True)
    assert error_of(out, q, -k, v, causal=True) < GAUSSIAN_ERROR


# Field case B09: sums of the largest float16 values.
@pytest.mark.parametrize("smooth_values", [True, False])
def test_largest_float16_values(device, smooth_values):
    q, k, v = tensors(device, 40, 500, dtype=torch.float16)
    v[:] = 65504.0
    v[..., 64:] = -65504.0
    out = attention(q, k, v, numerics={"smooth_values": smooth_values})
    assert relative_l2(to_numpy(out), to_numpy(v[:1].expand_as(out))) < 0.02


# Field case B14: every option that is accepted has its effect.
@pytest.mark.parametrize("scale", [0.02, 0.15])
def test_softmax_scale_is_honoured(device, scale):
    inputs = tensors(device, 60, 200)
    out, lse = attention(*inputs, softmax_scale=scale, return_lse=True)
    assert error_of(out, *inputs, scale=scale) < GAUSSIAN_ERROR
    difference = to_numpy(lse) - exact(*inputs, scale=scale)[1]
    assert numpy.sqrt(numpy.mean(difference**2)) < LSE_ERROR
    assert not torch.equal(out, attention(*inputs))


# Field case B20: probabilities sum to one under every mask.
@pytest.mark.parametrize("queries, keys", [(300, 300), (88, 448), (300, 77)])
@pytest.mark.parametrize("causal", [False, True])
def test_probabilities_sum_to_one(device, queries, keys, causal):
    q, k, v = tensors(device, queries, keys)
    for smooth_values in (True, False):
        out, lse = attention(
            q, k, torch.ones_like(v), causal=causal, return_lse=True,
            numerics={"smooth_values": smooth_values},
        )  # fmt: skip
        seen = torch.isfinite(lse).T  # [queries, heads]
        assert (out[seen].float() - 1).abs().max() < 0.01
        assert (out[~seen] == 0).all()
        assert (~seen).sum() == (max(queries - keys, 0) * q.shape[1] if causal else 0)


# Field case C07: stride 0 and a key more than a multiple of 32.
@pytest.mark.parametrize("keys", [33, 65, 129, 257])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_expanded_tensors(device, keys, axis):
    q, k, v = tensors(device, 70, keys, heads=3, batch=2)
    expanded = [x.narrow(axis, 0, 1).expand_as(x) for x in (k, v)]
    assert all(x.stride(axis) == 0 for x in expanded)
    out = attention(q, *expanded)
    assert torch.equal(out, attention(q, *(x.contiguous() for x in expanded)))


# Field case C08: contiguous tensors with odd strides along axes of one element.
def test_odd_strides_of_single_elements(device):
    q, k, v = tensors(device, 40, 50, heads=1, batch=1)
    odd = [x.as_strided(x.shape, (7, 128, 3, 1)) for x in (q, k, v)]
    assert torch.equal(attention(*odd), attention(q, k, v))


# Field case C13: the caller's tensors stay as they are.
@pytest.mark.parametrize("budget", [0.0, 0.05])
def test_inputs_are_const(device, budget):
    inputs = tensors(device, 200, 333)
    copies = [x.clone() for x in inputs]
    prepared = open_vc_attn.prepare_v_repair(*inputs, budget=budget, with_lse=True)
    open_vc_attn.attention_v_repair(prepared, return_lse=True)
    attention(*inputs)
    for x, copy in zip(inputs, copies, strict=True):
        assert torch.equal(x.view(torch.uint8), copy.view(torch.uint8))


# Field case E04: parts of the keys merge by their LSE.
@pytest.mark.parametrize("cut", [1, 100, 299])
def test_shards_merge_by_lse(device, cut):
    q, k, v = tensors(device, 50, 300)
    k += 2 * torch.randn(128, device=device).to(k)  # a mean, which smoothing removes
    parts = [attention(q, k[s], v[s], return_lse=True) for s in (slice(cut), slice(cut, None))]
    lses = torch.stack([lse for _, lse in parts])
    weights = (lses - torch.logsumexp(lses, 0)).exp().transpose(1, 2)[..., None]
    merged = sum(out.float() * weight for (out, _), weight in zip(parts, weights, strict=True))
    assert error_of(merged, q, k, v) < GAUSSIAN_ERROR


# Field case E08: what is_supported() says is what the call does.
def test_support_query_agrees_with_the_call(device):
    q, k, v = tensors(device, 20, 30)
    candidates = [(q, k, v), (q, k[:, :1], v[:, :1]), (q[:, :1], k, v)]
    candidates += [tuple(x[..., :size] for x in (q, k, v)) for size in (64, 60)]
    candidates.append(tuple(x.float() for x in (q, k, v)))
    answers = []
    for call in candidates:
        support = is_supported(*call)
        answers.append(bool(support))
        if support:
            attention(*call)
            continue
        with pytest.raises((ValueError, TypeError, NotImplementedError)) as refusal:
            attention(*call)
        assert str(refusal.value) == support.reason
    assert answers == [True, True, False, True, False, device == "cpu"]


# Field case X02: a prepared object keeps what it was made from.
def test_prepared_objects_are_frozen(device):
    q, k, v = tensors(device, 100, 200)
    prepared = prepare_fp8(q, k, v)
    expected = attention_fp8(prepared)
    for x in (q, k, v):
        x.zero_()
    assert torch.equal(attention_fp8(prepared), expected)


# Field case X04: asking for the LSE changes nothing else.
@pytest.mark.parametrize("causal", [False, True])
def test_lse_leaves_the_output_alone(device, causal):
    inputs = tensors(device, 300, 333)
    out, _ = attention(*inputs, causal=causal, return_lse=True)
    assert torch.equal(out, attention(*inputs, causal=causal))


# Field cases C01 and C02: one head of a fused projection whose offsets pass 2^31 and 2^32 elements.
@pytest.mark.gpu
def test_offsets_beyond_32_bits():
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    tokens, heads = 200_064, 3 * 56
    needed = tokens * heads * 128 * 2
    if torch.cuda.mem_get_info()[0] < 1.3 * needed:
        pytest.skip(f"needs {needed} bytes of device memory")
    torch.manual_seed(1)
    wide = torch.empty(tokens, heads, 128, device="cuda", dtype=torch.bfloat16).normal_()
    q, k, v = (wide[:, head : head + 1] for head in (55, 111, 167))
    last = slice(tokens - 300, tokens)
    expected = attention(q[last].contiguous(), k.contiguous(), v.contiguous())
    assert torch.equal(attention(q[last], k, v), expected)
    # Keys, and the output's rows, beyond them alone.
    expected = attention(q.contiguous(), k[last].contiguous(), v[last].contiguous())
    assert torch.equal(attention(q, k[last], v[last]), expected)
