# SPDX-License-Identifier: BSD-3-Clause
"""What a refusal advises works: the code in its text is run, and the call after it succeeds."""

import io
import re

import numpy
import pytest
from conftest import random_qkv, relative_l2

import open_vc_attn
from open_vc_attn import attention, exact_attention, is_supported

ml_dtypes = pytest.importorskip("ml_dtypes")

Q, K, V = random_qkv(20, 30)
EXPECTED = exact_attention(Q, K, V)
# Rounding of the inputs to 8 bits, and of their types in some cases.
ERROR = 0.1


def saved_by_numpy(x):
    file = io.BytesIO()
    numpy.save(file, x.astype(ml_dtypes.bfloat16))
    file.seek(0)
    return numpy.load(file)


def byte_shifted(x):
    return numpy.frombuffer(bytes(1) + x.tobytes(), numpy.uint8)[1:].view(x.dtype).reshape(x.shape)


def odd_strides(x):
    """Rows that are one byte further apart than their numbers take."""
    queries, heads, channels = x.shape
    row = x.itemsize * channels
    memory = numpy.zeros(queries * heads * (row + 1) + x.itemsize, numpy.uint8)
    strides = (heads * (row + 1), row + 1, x.itemsize)
    shifted = numpy.ndarray(x.shape, x.dtype, memory, 0, strides)
    shifted[...] = x
    return shifted


# id: how an array is spoilt, the code that the refusal advises.
NUMPY = {
    "float64": (lambda x: x.astype("f8"), "q.astype(numpy.float32)"),
    "integers": (lambda x: (x * 8).astype("i4"), "q.astype(numpy.float32)"),
    "float8": (lambda x: x.astype(ml_dtypes.float8_e4m3fn), "q.astype(numpy.float32)"),
    "bfloat16 from a file": (saved_by_numpy, "q.view(ml_dtypes.bfloat16)"),
    "bfloat16 as uint16": (
        lambda x: x.astype(ml_dtypes.bfloat16).view("u2"),
        "q.view(ml_dtypes.bfloat16)",
    ),
    "whole numbers as uint16": (lambda x: (x * 8 + 99).astype("u2"), "q.astype(numpy.float32)"),
    "byte order": (lambda x: x.astype(">f4"), "q.astype('float32')"),
    "masked": (lambda x: numpy.ma.array(x, mask=x > 2), "q.filled(0)"),
    "byte address": (byte_shifted, "q.copy()"),
    "byte strides": (odd_strides, "q.copy()"),
    "list": (lambda x: x.tolist(), "numpy.asarray(q, numpy.float32)"),
}
OTHER_NUMBERS = ("integers", "whole numbers as uint16", "masked")


def error_of(call, *args, **options):
    with pytest.raises((TypeError, ValueError, NotImplementedError)) as refusal:
        call(*args, **options)
    return str(refusal.value)


@pytest.mark.parametrize("name", NUMPY)
def test_numpy_arrays(name):
    spoil, code = NUMPY[name]
    q = spoil(Q)
    message = error_of(attention, q, K, V)
    assert message.startswith("q: ") and "; expected " in message
    assert code in message
    repaired = eval(code, {"q": q, "numpy": numpy, "ml_dtypes": ml_dtypes})
    k, v = (x.astype(repaired.dtype) for x in (K, V))
    out = attention(repaired, k, v).astype("f4")
    if name not in OTHER_NUMBERS:
        assert relative_l2(out, EXPECTED) < ERROR


torch = pytest.importorskip("torch", minversion="2.4")


def dual(x):
    return torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))


TORCH = {
    "float64": (lambda x: x.double(), "q.to(torch.bfloat16)"),
    "float8": (lambda x: x.to(torch.float8_e4m3fn), "q.to(torch.bfloat16)"),
    "integers": (lambda x: (x * 8).to(torch.int32), "q.to(torch.bfloat16)"),
    "sparse": (lambda x: x.to_sparse(), "q.to_dense()"),
    "sparse rows": (lambda x: x.to_sparse(1), "q.to_dense()"),
    "quantized": (lambda x: torch.quantize_per_tensor(x, 0.02, 0, torch.qint32), "q.dequantize()"),
    "nested": (lambda x: torch.nested.nested_tensor([x, x]), "q.unbind()[0]"),
    "jagged": (lambda x: torch.nested.nested_tensor([x, x], layout=torch.jagged), "q.unbind()[0]"),
    "requires grad": (lambda x: x.clone().requires_grad_(), "q.detach()"),
    "tangent": (dual, "torch.autograd.forward_ad.unpack_dual(q).primal"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TORCH)
def test_tensors(name):
    spoil, code = TORCH[name]
    k, v = (torch.from_numpy(x) for x in (K, V))
    with torch.autograd.forward_ad.dual_level():
        q = spoil(torch.from_numpy(Q))
        message = error_of(attention, q, k, v)
        assert message.startswith("q: ") and "; expected " in message
        assert code.removesuffix("[0]") in message
        assert is_supported(q, k, v).reason == message
        repaired = eval(code, {"q": q, "torch": torch})
        out = attention(repaired, k.to(repaired.dtype), v.to(repaired.dtype))
    if name not in OTHER_NUMBERS:
        assert relative_l2(out.float(), EXPECTED) < ERROR


MEMORY = {
    "negated": (torch._neg_view, "q.resolve_neg()"),
    "zeros": (lambda x: torch._efficientzerotensor(x.shape), "q.clone()"),
}


@pytest.mark.parametrize("name", MEMORY)
def test_tensors_that_are_read_in_place(name):
    spoil, code = MEMORY[name]
    q, k, v = (torch.from_numpy(x) for x in (Q, K, V))
    q = spoil(q)
    for call in (open_vc_attn.prepare_fp8, exact_attention):
        assert code in error_of(call, q, k, v)
        call(eval(code, {"q": q}), k, v)


@pytest.mark.parametrize("context", ["torch.no_grad()", "torch.inference_mode()"])
def test_modes_without_gradients(context):
    q = torch.from_numpy(Q).clone().requires_grad_()
    k, v = torch.from_numpy(K), torch.from_numpy(V)
    assert context in error_of(attention, q, k, v)
    with eval(context, {"torch": torch}):
        attention(q, k, v)


def test_inference_mode_has_no_tangents():
    q, k, v = (torch.from_numpy(x) for x in (Q, K, V))
    with torch.autograd.forward_ad.dual_level():
        q = dual(q)
        assert "torch.inference_mode()" in error_of(attention, q, k, v)
        with torch.inference_mode():
            attention(q, k, v)


def test_one_type_framework_layout_for_all():
    assert "Convert them to the one" in error_of(attention, Q, K.astype("f2"), V)
    assert "Convert them to the one" in error_of(attention, Q, torch.from_numpy(K), V)
    attention(Q, torch.from_numpy(K).numpy(), V)
    message = error_of(attention, Q[None], K, V)
    assert "Reshape them" in message
    attention(Q[None], K[None], V[None])


@pytest.mark.parametrize(
    "rows, code", [(3, "[3]"), ([1.0, 2.0], "int(row)"), ([], "Leave it out"), ([20], "from 0")]
)
def test_rows(rows, code):
    assert code in error_of(exact_attention, Q, K, V, rows)
    repaired = {
        "[3]": [3],
        "int(row)": [int(row) for row in (rows if isinstance(rows, list) else [])],
        "Leave it out": None,
        "from 0": [19],
    }[code]
    exact_attention(Q, K, V, repaired)


def test_prepared():
    message = error_of(open_vc_attn.attention_fp8, (Q, K, V))
    calls = re.findall(r"prepare_\w+\([^)]*\)", message)
    assert len(calls) == 2
    for call in calls:
        names = {**vars(open_vc_attn), "q": Q, "k": K, "v": V}
        prepared = eval(call.replace("budget=...", "budget=0.1"), names)
        open_vc_attn.attention_fp8(prepared)
    message = error_of(open_vc_attn.attention_fp8, prepared, return_lse=True)
    assert "with_lse=True" in message
    prepared = open_vc_attn.prepare_fp8(Q, K, V, with_lse=True)
    open_vc_attn.attention_fp8(prepared, return_lse=True)
