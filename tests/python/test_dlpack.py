# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of frameworks that the package does not know, through DLPack."""

import types

import numpy
import pytest
from conftest import as_bytes, random_qkv

import open_vc_attn
from open_vc_attn import attention, exact_attention, is_supported

CUDA = 2


class Foreign:
    """An array that speaks DLPack and nothing else."""

    def __init__(self, array, device=None):
        self._array = array
        self._device = device
        self.shape = array.shape

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._device or self._array.__dlpack_device__()


class Standard(Foreign):
    """The same with the namespace of the Python array API standard."""

    def __array_namespace__(self, api_version=None):
        return types.SimpleNamespace(from_dlpack=lambda x: Standard(numpy.from_dlpack(x)))


@pytest.mark.parametrize("kind", [Foreign, Standard])
@pytest.mark.parametrize("batch", [None, 2])
def test_equal_to_numpy_bit_for_bit(kind, batch):
    inputs = random_qkv(70, 90, batch=batch, dtype=numpy.float16)
    out, lse = attention(*map(kind, inputs), return_lse=True)
    expected, expected_lse = attention(*inputs, return_lse=True)
    assert isinstance(out, Standard) == (kind is Standard)
    for found, wanted in ((out, expected), (lse, expected_lse)):
        array = numpy.from_dlpack(found)
        assert (array.shape, array.dtype) == (wanted.shape, wanted.dtype)
        assert as_bytes(array) == as_bytes(wanted)


def test_strides():
    q, k, v = random_qkv(70, 90)
    strided = [numpy.ascontiguousarray(x.swapaxes(0, 1)).swapaxes(0, 1)[::-1] for x in (q, k, v)]
    expected = attention(q[::-1], k[::-1], v[::-1])
    assert as_bytes(numpy.from_dlpack(attention(*map(Foreign, strided)))) == as_bytes(expected)


def test_bfloat16():
    torch = pytest.importorskip("torch")
    inputs = [torch.from_numpy(x).bfloat16() for x in random_qkv(40)]
    out = torch.from_dlpack(attention(*map(Foreign, inputs)))
    assert torch.equal(out, attention(*inputs))


def test_result_outlives_everything_else():
    out = numpy.from_dlpack(attention(*map(Foreign, random_qkv(300))))
    expected = attention(*random_qkv(300))
    random_qkv(300)
    assert as_bytes(out) == as_bytes(expected)


def test_prepared_and_exact():
    inputs = random_qkv(40, 60, dtype=numpy.float16)
    foreign = [*map(Standard, inputs)]
    prepared = open_vc_attn.prepare_fp8(*foreign)
    assert (prepared.dtype, prepared.device) == ("float16", "cpu")
    out = open_vc_attn.attention_fp8(prepared)
    assert isinstance(out, Standard)
    assert as_bytes(numpy.from_dlpack(out)) == as_bytes(attention(*inputs))
    exact = numpy.from_dlpack(exact_attention(*foreign, [5]))
    numpy.testing.assert_array_equal(exact, exact_attention(*inputs, [5]))


def test_refusals():
    q, k, v = random_qkv(20)
    with pytest.raises(NotImplementedError, match=r"q: device DLPack device \(2, 0\).*torch.from"):
        attention(*[Foreign(x, device=(CUDA, 0)) for x in (q, k, v)])
    with pytest.raises(TypeError, match="k has DLPack type code 2 with 64 bits"):
        attention(Foreign(q), Foreign(k.astype("f8")), Foreign(v))
    with pytest.raises(ValueError, match=r"q has 2 dimensions; expected \[S, H, D\]"):
        attention(*[Foreign(x[0]) for x in (q, k, v)])
    with pytest.raises(TypeError, match="arrays of DLPack, numpy, DLPack; expected one framework"):
        attention(Foreign(q), k, Foreign(v))
    assert "one framework" in is_supported(Foreign(q), k, Foreign(v)).reason
