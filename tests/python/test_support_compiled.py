# SPDX-License-Identifier: BSD-3-Clause
"""is_supported() in compiled and exported functions: raises nothing and says what the call does."""

import collections
import types

import numpy
import pytest

from open_vc_attn import Support, attention, is_supported

torch = pytest.importorskip("torch", minversion="2.7")
dynamo = pytest.importorskip("torch._dynamo")

pytestmark = pytest.mark.filterwarnings("ignore")

HEADS = 2
X = torch.linspace(-1, 1, 6 * HEADS * 128).view(6, HEADS, 128)
MASK = torch.tensor([True, False, True, True, False, True])


@pytest.fixture(autouse=True)
def unbacked_sizes():
    """Compilers keep sizes that depend on numbers as symbols."""
    names = ("capture_dynamic_output_shape_ops", "capture_scalar_outputs")
    with dynamo.config.patch({name: True for name in names}):
        yield


def compiled(function, *args, **options):
    dynamo.reset()
    return torch.compile(function, fullgraph=True, backend="eager", **options)(*args)


def agree(operands, *args, **options):
    """The answer for operands(*args) in a compiled function, which must be what the call does."""
    support = compiled(lambda *x: is_supported(*operands(*x), **options), *args)
    assert isinstance(support, Support)
    if support:
        assert support.reason == ""
        compiled(lambda *x: attention(*operands(*x), **options), *args)
    else:
        assert support.reason
        with pytest.raises((NotImplementedError, TypeError, ValueError)):
            attention(*operands(*args), **options)
    return support


def three(function):
    """The same tensor for q, k and v."""
    return lambda *x: (function(*x),) * 3


SUPPORTED = {
    "mask of q": lambda x, m: (x[m], x, x),
    "mask of keys": lambda x, m: (x, x[m], x[m] + 1),
    "nonzero": three(lambda x, m: x[m.nonzero()[:, 0]]),
    "masked tokens of a batch": three(lambda x, m: x[m][None]),
    "masked heads": three(lambda x, m: x.transpose(0, 1)[:, m]),
    "slice by a number": three(lambda x, m: x[: m.sum().item()]),
    "zeros by a number": three(lambda x, m: x.new_zeros(m.sum().item(), HEADS, 128)),
    "repeated": three(lambda x, m: x.repeat_interleave(m.long() + 1, 0)),
    "mask of float16": three(lambda x, m: x.half()[m]),
    "narrow heads": three(lambda x, m: x[m][..., :64]),
    "grouped heads": lambda x, m: (x[m], x[m][:, :1], x[m][:, :1]),
}
REFUSED = {
    "odd heads": three(lambda x, m: x[m][..., :60]),
    "masked channels": three(lambda x, m: x.transpose(0, 2)[..., m]),
    "every second channel": three(lambda x, m: torch.cat([x, x], -1)[m][..., ::2]),
    "other heads": lambda x, m: (x[m][:, :1], x[m], x[m]),
    "other values": lambda x, m: (x[m], x, x[1:]),
    "no heads": three(lambda x, m: x[m][:, :0]),
    "two axes": three(lambda x, m: x[m][:, 0]),
    "five axes": three(lambda x, m: x[m][None, None]),
    "ranks": lambda x, m: (x[m], x[None], x[None]),
    "float64": three(lambda x, m: x.double()[m]),
    "types": lambda x, m: (x[m].half(), x, x),
}


@pytest.mark.parametrize("form", SUPPORTED)
def test_sizes_that_depend_on_numbers(form):
    def dispatch(x, mask):
        operands = SUPPORTED[form](x, mask)
        return attention(*operands) if is_supported(*operands) else x * 2

    assert torch.equal(compiled(dispatch, X, MASK, dynamic=True), dispatch(X, MASK))


@pytest.mark.parametrize("form", REFUSED)
def test_sizes_that_do_not_fit(form):
    assert not agree(REFUSED[form], X, MASK)
    assert not is_supported(*REFUSED[form](X, MASK))


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("form", ["mask of q", "odd heads"])
def test_export_of_sizes_that_depend_on_numbers(form, strict):
    operands = (SUPPORTED | REFUSED)[form]

    class Model(torch.nn.Module):
        def forward(self, x, mask):
            q, k, v = operands(x, mask)
            return attention(q, k, v) if is_supported(q, k, v) else q * 2

    program = torch.export.export(Model(), (X, MASK), strict=strict)
    other = MASK.roll(1) | MASK
    for mask in (MASK, other):
        assert torch.equal(program.module()(X, mask), Model()(X, mask))


DERIVATIVES = {
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (x,))[0],
    "jvp of a constant": lambda f, x: torch.func.jvp(lambda y: f(x) + y, (x,), (x,))[0],
    "jvp of vmap": lambda f, x: torch.func.jvp(torch.vmap(f), (x[None],), (x[None],))[0][0],
    "vmap": lambda f, x: torch.vmap(f)(x[None])[0],
    "grad": lambda f, x: torch.func.grad(lambda y: f(y).sum())(x),
    "vjp": lambda f, x: torch.func.vjp(f, x)[1](x)[0],
    "jvp of grad": lambda f, x: torch.func.jvp(torch.func.grad(lambda y: f(y).sum()), (x,), (x,))[
        0
    ],
    "plain": lambda f, x: f(x),
}


@pytest.mark.parametrize("transform", DERIVATIVES)
def test_transformations(transform):
    """Where the answer is yes, the call runs; a derivative is never 0 in silence."""
    answers = []

    def ask(x):
        answer = is_supported(x, x, x)
        answers.append(bool(answer))
        return x * 2

    compiled(lambda x: DERIVATIVES[transform](ask, x), X)
    call = lambda x: DERIVATIVES[transform](lambda y: attention(y, y, y), x)  # noqa: E731
    try:
        expected = call(X)
    except Exception:
        assert answers == [False]
        with pytest.raises(Exception, match="q: "):
            compiled(call, X)
    else:
        assert answers == [True]
        assert torch.equal(compiled(call, X), expected)


class SpeaksDlpack:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class LooksLikeATensor:
    shape, dtype, device = (6, HEADS, 128), torch.float32, torch.device("cpu")

    def dim(self):
        return 3

    def stride(self):
        return (HEADS * 128, 128, 1)


class Overrides:
    def __torch_function__(self, *_):
        raise RuntimeError("no")


Pair = collections.namedtuple("Pair", "a b")

OBJECTS = {
    "None": None,
    "object": object(),
    "int": 3,
    "float": 0.5,
    "text": "q",
    "list": [1.0],
    "list of tensors": [X],
    "tuple": (X, X),
    "named tuple": Pair(1, 2),
    "dict": {"q": X},
    "set": {1},
    "range": range(3),
    "slice": slice(3),
    "ellipsis": ...,
    "class": LooksLikeATensor,
    "function": len,
    "module": types,
    "dtype": torch.float32,
    "device": torch.device("cpu"),
    "size": X.shape,
    "layer": torch.nn.Linear(1, 1),
    "namespace": types.SimpleNamespace(shape=(1,)),
    "looks like a tensor": LooksLikeATensor(),
    "overrides": Overrides(),
    "DLPack": SpeaksDlpack(X.numpy()),
    "NumPy": X.numpy(),
    "NumPy of other type": X.double().numpy(),
}


@pytest.mark.parametrize("index", range(len(OBJECTS)))
def test_objects(index):
    value, position = [*OBJECTS.values()][index], index % 3
    agree(lambda x: [value if i == position else x for i in range(3)], X)


def test_dlpack_arrays_are_refused_with_advice():
    value = OBJECTS["DLPack"]
    support = compiled(lambda: is_supported(value, value, value))
    assert not support and "torch.from_dlpack(q)" in support.reason
    with pytest.raises(Exception, match="Observed exception"):
        compiled(lambda: attention(value, value, value))
    assert is_supported(value, value, value)


def test_objects_that_are_made_on_the_way():
    for make in (
        object,
        list,
        dict,
        LooksLikeATensor,
        types.SimpleNamespace,
        lambda: (i for i in [1]),
    ):
        assert not agree(lambda x, make=make: (make(), x, x), X)


@pytest.mark.parametrize("name", ["object", "list", "dtype", "looks like a tensor"])
@pytest.mark.parametrize(
    "option", ["causal", "softmax_scale", "return_lse", "key_order", "numerics"]
)
def test_options(option, name):
    agree(three(lambda x: x), X, **{option: OBJECTS[name]})


NUMPY = {
    "f2": ((6, 2, 128), "f2"),
    "f4": ((1, 6, 2, 128), "f4"),
    "f8": ((6, 2, 128), "f8"),
    "bool": ((6, 2, 128), "?"),
    "narrow": ((6, 2, 64), "f4"),
    "two axes": ((6, 128), "f4"),
    "empty": ((0, 2, 128), "f4"),
}


@pytest.mark.parametrize("form", NUMPY)
def test_numpy_arrays(form):
    shape, dtype = NUMPY[form]
    arrays = [numpy.ones(shape, dtype) * i for i in range(3)]
    support = agree(lambda *x: x, *arrays)
    assert bool(support) == bool(is_supported(*arrays))
    if support:
        call = lambda *x: attention(*x, return_lse=True)  # noqa: E731
        for found, expected in zip(compiled(call, *arrays), call(*arrays), strict=True):
            assert type(found) is numpy.ndarray and found.dtype == expected.dtype
            numpy.testing.assert_array_equal(found, expected)
        alone = compiled(attention, *arrays)
        assert type(alone) is numpy.ndarray and numpy.array_equal(alone, attention(*arrays))


def test_numpy_arrays_next_to_tensors():
    assert "one framework" in agree(lambda x, y: (x, y, y), X, X.numpy()).reason


def test_without_fullgraph_other_arrays_leave_the_graph():
    q = SpeaksDlpack(X.numpy())
    assert torch.compile(lambda: is_supported(q, q, q), backend="eager")() == Support(True)
    out = torch.compile(lambda: attention(q, q, q), backend="eager")()
    assert torch.equal(torch.from_dlpack(out), attention(X, X, X))
