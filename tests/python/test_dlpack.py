# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of frameworks that the package does not know, through DLPack."""

import gc
import re
import sys
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


class Nameless:
    """An array that has no attribute but DLPack's functions."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return (1, 0)


def entries():
    """Entry points as functions of Q, K and V; each gives one array."""
    return {
        "attention": attention,
        "attention_with_lse": lambda *x: attention(*x, return_lse=True)[1],
        "exact_attention": exact_attention,
        "exact_attention_with_lse": lambda *x: exact_attention(*x, return_lse=True)[1],
        "rows": lambda *x: exact_attention(*x, rows=[2, 0]),
        "prepare_fp8": lambda *x: open_vc_attn.attention_fp8(open_vc_attn.prepare_fp8(*x)),
        "prepare_v_repair": lambda *x: open_vc_attn.attention_fp8(
            open_vc_attn.prepare_v_repair(*x, budget=0.2)
        ),
    }


SHAPES_THAT_LIE = [
    (5, 2, 128),
    (500, 2, 128),
    (40, 200, 128),
    (40, 0, 128),
    (1, 40, 2, 128),
    (40, 2),
    (),
    None,
    "shape",
    [40, 2, 128],
]


@pytest.mark.parametrize("entry", entries())
@pytest.mark.parametrize("index", range(len(SHAPES_THAT_LIE)))
def test_sizes_come_from_the_capsule(index, entry):
    inputs = random_qkv(40)
    expected = entries()[entry](*inputs)
    foreign = [Foreign(x) for x in inputs]
    for x in foreign:
        x.shape = SHAPES_THAT_LIE[index]
    assert is_supported(*foreign)
    assert as_bytes(numpy.from_dlpack(entries()[entry](*foreign))) == as_bytes(expected)


class Lies(numpy.ndarray):
    """A NumPy array that says something else about itself than NumPy knows."""

    shape = property(lambda self: (4000, 2, 128))
    strides = property(lambda self: (0, 0, 4))
    __array_interface__ = property(lambda self: {"data": (16, False)})
    dtype = property(lambda self: numpy.dtype("f2"))


@pytest.mark.parametrize("entry", entries())
def test_attributes_of_subclasses_do_not_matter(entry):
    inputs = random_qkv(40)
    expected = entries()[entry](*inputs)
    lying = [x.view(Lies) for x in inputs]
    assert is_supported(*lying)
    assert as_bytes(entries()[entry](*lying)) == as_bytes(expected)


@pytest.mark.parametrize("entry", entries())
def test_attributes_of_torch_subclasses_do_not_matter(entry):
    torch = pytest.importorskip("torch", minversion="2.4")

    class LyingTensor(torch.Tensor):
        shape = property(lambda self: torch.Size((4000, 2, 128)))

        def stride(self, *_):
            return (0, 0, 1)

        def data_ptr(self):
            return 16

    inputs = random_qkv(40)
    expected = entries()[entry](*inputs)
    lying = [torch.from_numpy(x).as_subclass(LyingTensor) for x in inputs]
    found = entries()[entry](*lying)
    assert as_bytes(torch.Tensor.as_subclass(found, torch.Tensor).numpy()) == as_bytes(expected)


@pytest.mark.parametrize("entry", entries())
def test_arrays_without_a_shape(entry):
    inputs = random_qkv(40)
    nameless = [*map(Nameless, inputs)]
    assert is_supported(*nameless)
    found = entries()[entry](*nameless)
    assert as_bytes(numpy.from_dlpack(found)) == as_bytes(entries()[entry](*inputs))


def test_results_are_inputs():
    inputs = random_qkv(40)
    out = attention(*map(Nameless, inputs))
    again = attention(*inputs)
    assert is_supported(out, out, out)
    for entry in entries().values():
        found = entry(out, out, out)
        assert as_bytes(numpy.from_dlpack(found)) == as_bytes(entry(again, again, again))


class Held(Nameless):
    """A producer that gives the same capsule each time."""

    def __init__(self, array, capsule=None):
        super().__init__(array)
        self._capsule = array.__dlpack__() if capsule is None else capsule

    def __dlpack__(self, **_):
        return self._capsule


@pytest.mark.parametrize("sharing", ["one array", "one capsule", "three capsules"])
@pytest.mark.parametrize("entry", entries())
def test_a_capsule_is_used_once(entry, sharing):
    x = random_qkv(40)[0]
    held = Held(x)
    operands = {
        "one array": [held] * 3,
        "one capsule": [held, Held(x, held._capsule), Held(x, held._capsule)],
        "three capsules": [Held(x), Held(x), Held(x)],
    }[sharing]
    for _ in range(3):  # a question uses nothing up
        assert is_supported(*operands)
    found = numpy.from_dlpack(entries()[entry](*operands))
    assert as_bytes(found) == as_bytes(entries()[entry](x, x, x))
    for _ in range(3):
        support = is_supported(*operands)
        assert "q: __dlpack__() gave a capsule that was used before" in support.reason
        with pytest.raises(ValueError, match="used before; expected a new one from every call"):
            entries()[entry](*operands)
    references = sys.getrefcount(x)
    del held, operands
    gc.collect()
    assert sys.getrefcount(x) < references  # freed once, and not by the capsules


def test_a_capsule_that_somebody_else_used():
    x = random_qkv(40)[0]
    held = Held(x)
    numpy.from_dlpack(held)
    assert "used before" in is_supported(held, held, held).reason
    with pytest.raises(ValueError, match="used before"):
        attention(held, held, held)


class Raising(Nameless):
    def __init__(self, function, error):
        super().__init__(None)
        self._raises = function, error

    def _try(self, name, value):
        if self._raises[0] == name:
            raise self._raises[1]
        return value

    def __dlpack__(self, **_):
        return self._try("capsule", "no capsule")

    def __dlpack_device__(self):
        return self._try("device", (1, 0))


@pytest.mark.parametrize("position", range(3))
@pytest.mark.parametrize(
    "function, error",
    [
        ("capsule", OSError("device lost")),
        ("capsule", TypeError("mine")),
        ("capsule", BufferError("locked")),
        ("device", ZeroDivisionError("no device")),
        ("nothing", None),
    ],
)
def test_producers_that_fail(function, error, position):
    operands = [Nameless(x) for x in random_qkv(4)]
    operands[position] = Raising(function, error)
    expected = rf"{'qkv'[position]}: .*{error if error else 'gave str; expected a DLPack capsule'}"
    with pytest.raises((ValueError, TypeError), match=expected) as caught:
        attention(*operands)
    assert is_supported(*operands).reason == str(caught.value)


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


@pytest.mark.parametrize("answer", [None, 0, "capsule", object(), b"", [1]])
def test_answers_that_are_no_capsule(answer):
    class Answers:
        def __dlpack__(self, **_):
            return answer

        def __dlpack_device__(self):
            return (1, 0)

    array = Answers()
    words = f"q: __dlpack__() gave {type(answer).__name__}; expected a DLPack capsule"
    with pytest.raises(TypeError, match=re.escape(words)):
        attention(array, array, array)
    assert words in is_supported(array, array, array).reason
