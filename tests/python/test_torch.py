# SPDX-License-Identifier: BSD-3-Clause
"""torch tensors, eager."""

import numpy
import pytest
from conftest import GAUSSIAN_ERROR, LSE_ERROR, as_bytes, random_qkv, relative_l2, softmax_attention

import open_vc_attn
from open_vc_attn import attention, exact_attention, is_supported

torch = pytest.importorskip("torch")

DTYPES = [torch.bfloat16, torch.float16, torch.float32]


def tensors(*shape, dtype=torch.bfloat16, **options):
    return tuple(torch.from_numpy(x).to(dtype) for x in random_qkv(*shape, **options))


def equal_bits(a, b):
    same = a.dtype == b.dtype and a.shape == b.shape
    return same and torch.equal(a.view(torch.uint8), b.view(torch.uint8))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [None, 2])
def test_result_has_the_form_of_q(dtype, batch):
    q, k, v = tensors(33, 50, dtype=dtype, batch=batch, heads=3)
    out, lse = attention(q, k, v, return_lse=True)
    assert (out.shape, out.dtype, out.device) == (q.shape, q.dtype, q.device)
    assert out.is_contiguous() and not out.requires_grad
    assert lse.dtype == torch.float32 and lse.shape == (*q.shape[:-3], 3, 33)
    expected, expected_lse = softmax_attention(*(x.float().numpy() for x in (q, k, v)))
    assert relative_l2(out.float(), expected) < GAUSSIAN_ERROR
    assert numpy.abs(lse.numpy() - expected_lse).max() < LSE_ERROR


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_equal_to_numpy_bit_for_bit(dtype):
    inputs = tensors(140, 150, dtype=getattr(torch, dtype))
    out, lse = attention(*inputs, return_lse=True)
    if dtype == "bfloat16":
        number = pytest.importorskip("ml_dtypes").bfloat16
        arrays = [x.view(torch.int16).numpy().view(number) for x in inputs]
    else:
        arrays = [x.numpy() for x in inputs]
    expected, expected_lse = attention(*arrays, return_lse=True)
    assert as_bytes(out.view(torch.uint8)) == as_bytes(expected)
    assert as_bytes(lse) == as_bytes(expected_lse)


def fused_projection(x):
    wide = torch.full((*x.shape[:-2], 3, *x.shape[-2:]), torch.nan, dtype=x.dtype)
    wide[..., 1, :, :] = x
    return wide[..., 1, :, :]


def heads_first(x):
    return x.transpose(-2, -3).contiguous().transpose(-2, -3)


def odd_address(x):
    buffer = torch.empty(x.numel() + 1, dtype=x.dtype)[1:].view(x.shape)
    return buffer.copy_(x)


@pytest.mark.parametrize("layout", [fused_projection, heads_first, odd_address])
def test_layout_does_not_matter(layout):
    inputs = tensors(100, 130, batch=2)
    expected = attention(*inputs)
    assert equal_bits(attention(*map(layout, inputs)), expected)


def test_expanded_keys_and_values():
    q, k, v = tensors(20, 33, heads=4)
    k, v = (x[:, :1].expand_as(x) for x in (k, v))
    assert equal_bits(attention(q, k, v), attention(q, k.contiguous(), v.contiguous()))


def test_inputs_are_never_modified():
    inputs = tensors(50)
    before = [x.clone() for x in inputs]
    versions = [x._version for x in inputs]
    attention(*inputs)
    open_vc_attn.attention_fp8(open_vc_attn.prepare_fp8(*inputs))
    assert all(equal_bits(x, y) for x, y in zip(inputs, before, strict=True))
    assert [x._version for x in inputs] == versions


def test_grad_is_refused():
    q, k, v = tensors(20)
    k.requires_grad_()
    with pytest.raises(ValueError, match=r"k: requires grad.*torch\.no_grad.*k\.detach"):
        attention(q, k, v)
    assert "k: requires grad" in is_supported(q, k, v).reason
    with torch.no_grad():
        expected = attention(q, k, v)
    with torch.inference_mode():
        assert equal_bits(attention(q, k, v), expected)
    assert equal_bits(attention(q, k.detach(), v), expected)
    assert not expected.requires_grad


def test_parameters_under_no_grad():
    q, k, v = map(torch.nn.Parameter, tensors(20))
    with torch.no_grad():
        assert attention(q, k, v).shape == q.shape


@pytest.mark.parametrize(
    "change, error, words",
    [
        (
            lambda x: x.double(),
            TypeError,
            "k: element type torch.float64; expected",
        ),
        (lambda x: x.to(torch.float8_e4m3fn), TypeError, "k: element type torch.float8_e4m3fn"),
        (lambda x: x.float(), TypeError, "element types bfloat16, float32, bfloat16; expected one"),
        (lambda x: x.to("meta"), NotImplementedError, "k: a meta tensor"),
        (lambda x: x.to_sparse(), NotImplementedError, r"k: layout torch.sparse_coo.*to_dense"),
        (
            lambda x: x.float().numpy(),
            TypeError,
            "arrays of torch, numpy, torch; expected one framework",
        ),
        (torch._neg_view, NotImplementedError, r"k: a lazily negated view.*resolve_neg"),
        (lambda x: x[None], ValueError, "layout"),
        (lambda x: x[:0], ValueError, "k: shape .*size 0"),
    ],
)
def test_refusals(change, error, words):
    q, k, v = tensors(20)
    k = change(k)
    with pytest.raises(error, match=words):
        open_vc_attn.prepare_fp8(q, k, v)
    if "neg" not in words:  # the dispatcher of torch negates for operators
        with pytest.raises(error, match=words):
            attention(q, k, v)
        assert not is_supported(q, k, v)


def test_negated_views_are_read_right():
    q, k, v = tensors(20)
    assert equal_bits(attention(q, torch._neg_view(k), v), attention(q, -k, v))


def test_cuda_without_a_backend_is_refused():
    from torch._subclasses.fake_tensor import FakeTensorMode

    if any(backend["device"] == "cuda" for backend in open_vc_attn.info()["backends"]):
        pytest.skip("this build has a CUDA backend")
    with FakeTensorMode():
        q = torch.empty(20, 2, 128, dtype=torch.bfloat16, device="cuda")
    native = open_vc_attn._openvc
    options = native.AttentionOptions(False, None, "mid_window", open_vc_attn.Numerics())
    view = native.tensor_from_pointer(
        256, native.ElementType.bfloat16, native.DeviceType.cuda, 0, (1, *q.shape), (0, *q.stride())
    )
    supported, reason = native.is_supported(view, view, view, options)
    assert not supported
    assert "device cuda:0, but this build has no backend for it" in reason
    with pytest.raises(NotImplementedError, match="no backend for it"):
        native.prepare(view, view, view, None, options, False, 0, 0, None)


def test_prepared():
    inputs = tensors(60, 80, batch=2)
    prepared = open_vc_attn.prepare_fp8(*inputs, with_lse=True)
    assert (prepared.dtype, prepared.device) == (torch.bfloat16, torch.device("cpu"))
    assert prepared.shapes.k == (2, 80, 2, 128)
    out, lse = open_vc_attn.attention_fp8(prepared, return_lse=True)
    expected, expected_lse = attention(*inputs, return_lse=True)
    assert equal_bits(out, expected) and equal_bits(lse, expected_lse)


def test_exact_attention():
    inputs = tensors(60, 80, batch=2)
    out, lse = exact_attention(*inputs, [3, 59], return_lse=True)
    expected, expected_lse = softmax_attention(*(x.double().numpy() for x in inputs))
    assert out.dtype == lse.dtype == torch.float64
    assert relative_l2(out, expected[:, [3, 59]]) < 1e-13
    assert numpy.abs(lse.numpy() - expected_lse[..., [3, 59]]).max() < 1e-12


def test_default_dtype_and_device_do_not_matter():
    inputs = tensors(20)
    expected = attention(*inputs)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            assert equal_bits(attention(*inputs), expected)
    finally:
        torch.set_default_dtype(torch.float32)


def test_under_autocast():
    inputs = tensors(20)
    with torch.autocast("cpu", torch.bfloat16):
        assert equal_bits(attention(*inputs), attention(*inputs))
