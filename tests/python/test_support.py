# SPDX-License-Identifier: BSD-3-Clause
"""is_supported() raises nothing and says what the call does, with the text of its refusal."""

import subprocess
import sys

import numpy
import pytest
from conftest import random_qkv

import open_vc_attn
from open_vc_attn import attention, is_supported


class Raises:
    """An object of which nothing can be asked."""

    def __getattribute__(self, name):
        raise RuntimeError(f"no {name}")


class SpeaksDlpackBadly:
    shape = (4, 1, 128)

    def __dlpack__(self, **_):
        raise OSError("device lost")

    def __dlpack_device__(self):
        return (1, 0)


class LiesAboutItsClass:
    @property
    def __class__(self):
        raise ValueError("no class")


def agree(q, k, v, **options):
    """The answer, which must be what the call does."""
    support = is_supported(q, k, v, **options)
    try:
        attention(q, k, v, **options)
    except Exception as error:
        assert not support
        assert support.reason == str(error)
    else:
        assert support and support.reason == ""
    return support


OBJECTS = [
    None,
    3,
    "q",
    [[1.0]],
    object(),
    type,
    numpy,
    Raises(),
    SpeaksDlpackBadly(),
    LiesAboutItsClass(),
    numpy.float32(1),
    numpy.zeros((4, 1, 128), object),
    numpy.zeros((4, 1, 128), "U3"),
    numpy.zeros((4, 1, 128), "M8[s]"),
    numpy.zeros((), "f4"),
    numpy.zeros(4, [("a", "f4"), ("b", "f4")]),
]


@pytest.mark.parametrize("position", range(3))
@pytest.mark.parametrize("index", range(len(OBJECTS)))
def test_any_object_is_answered(index, position):
    operands = list(random_qkv(4, 4, heads=1))
    operands[position] = OBJECTS[index]
    support = is_supported(*operands)
    assert not support and support.reason
    agree(*operands)


@pytest.mark.parametrize("name", ["causal", "softmax_scale", "return_lse", "key_order", "numerics"])
@pytest.mark.parametrize("index", range(len(OBJECTS)))
def test_any_option_is_answered(index, name):
    agree(*random_qkv(4, 4, heads=1), **{name: OBJECTS[index]})


SHAPES = [
    ((4, 1, 128), (4, 1, 128), (4, 1, 128)),
    ((1, 4, 1, 128), (1, 5, 1, 128), (1, 5, 1, 128)),
    ((4, 1, 128), (5, 1, 128), (4, 1, 128)),
    ((4, 2, 128), (5, 1, 128), (5, 1, 128)),
    ((2, 4, 1, 128), (1, 4, 1, 128), (1, 4, 1, 128)),
    ((4, 2, 128), (5, 3, 128), (5, 3, 128)),
    ((4, 1, 64), (4, 1, 64), (4, 1, 64)),
    ((4, 1, 60), (4, 1, 60), (4, 1, 60)),
    ((4, 1, 256), (4, 1, 256), (4, 1, 256)),
    ((4, 1, 128), (4, 1, 64), (4, 1, 64)),
    ((0, 1, 128), (4, 1, 128), (4, 1, 128)),
    ((4, 1, 128), (0, 1, 128), (0, 1, 128)),
    ((4, 0, 128), (4, 0, 128), (4, 0, 128)),
    ((4, 128), (4, 128), (4, 128)),
    ((1, 1, 4, 1, 128),) * 3,
    ((4, 1, 128), (1, 4, 1, 128), (1, 4, 1, 128)),
    ((128,),) * 3,
    ((),) * 3,
]


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4"])
def test_arrays(shapes, dtype):
    agree(*(numpy.ones(shape, dtype) for shape in shapes))


torch = pytest.importorskip("torch", minversion="2.4")


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_tensors(shapes, dtype):
    agree(*(torch.ones(shape, dtype=dtype) for shape in shapes))


def fake(*tensors):
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()
    return [mode.from_tensor(x) for x in tensors]


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_fake_tensors(shapes, dtype):
    agree(*fake(*(torch.ones(shape, dtype=dtype) for shape in shapes)))


def channels_last_but_one(x):
    return x.transpose(-1, -2).contiguous().transpose(-1, -2)


def wide(x):
    return torch.cat([x, x], -1)[..., ::2]


class Subclass(torch.Tensor):
    pass


def byte_shifted(x):
    memory = bytearray(x.nbytes + x.itemsize)
    count = x.numel()
    return torch.frombuffer(memory, dtype=x.dtype, offset=1, count=count).view(x.shape)


def resized(x, size):
    return cut(x.clone(), size)


def cut(x, size=1000):
    x.untyped_storage().resize_(size)
    return x


FORMS = {
    "plain": lambda x: x,
    "channel stride": channels_last_but_one,
    "every second channel": wide,
    "expanded": lambda x: x[:, :1].expand_as(x),
    "meta": lambda x: x.to("meta"),
    "nested": lambda x: torch.nested.nested_tensor([x, x]),
    "jagged": lambda x: torch.nested.nested_tensor([x, x], layout=torch.jagged),
    "sparse": lambda x: x.to_sparse(),
    "sparse rows": lambda x: x.flatten(1).to_sparse_csr(),
    "quantized": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8),
    "negated": torch._neg_view,
    "imaginary part of a conjugate": lambda x: torch.complex(x, x).conj().imag,
    "negated, tokens last": lambda x: torch._neg_view(
        x.transpose(0, 2).contiguous().transpose(0, 2)
    ),
    "negated, expanded": lambda x: torch._neg_view(x[:, :1]).expand_as(x),
    "byte address": byte_shifted,
    "half an element": lambda x: byte_shifted(x.bfloat16()),
    "freed storage": lambda x: resized(x, 0),
    "storage cut in the middle": lambda x: resized(x, 1000),
    "storage without its last byte": lambda x: resized(x, x.nbytes - 1),
    "slice of a cut storage": lambda x: cut(x.clone()[1:, 1:]),
    "slice before the cut": lambda x: resized(x, x.nbytes // 2)[:1],
    "zeros without memory": lambda x: torch._efficientzerotensor(x.shape),
    "parameter": torch.nn.Parameter,
    "requires grad": lambda x: x.clone().requires_grad_(),
    "complex": lambda x: x.to(torch.complex64),
    "bool": lambda x: x > 0,
    "float8": lambda x: x.to(torch.float8_e4m3fn),
    "subclass": lambda x: x.as_subclass(Subclass),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_forms_of_tensors(form, grad):
    q, k, v = (torch.from_numpy(x) for x in random_qkv(6, 6))
    with torch.set_grad_enabled(grad):
        agree(*(FORMS[form](x) for x in (q, k, v)))
        agree(q, k, FORMS[form](v))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["plain", "channel stride", "every second channel"])
@pytest.mark.parametrize("in_dims", [0, 1, -1, (0, None, None)])
def test_vmap(form, in_dims):
    answers = []

    def ask(q, k, v):
        answers.append(agree(q, k, v))
        return q.sum()

    inputs = [torch.from_numpy(x) for x in random_qkv(6, 6)]
    mapped = in_dims if isinstance(in_dims, tuple) else (in_dims,) * 3
    batched = [
        FORMS[form](x) if axis is None else torch.stack([FORMS[form](x)] * 2, axis)
        for x, axis in zip(inputs, mapped, strict=True)
    ]
    torch.vmap(ask, in_dims=in_dims)(*batched)
    assert len(answers) == 1


@pytest.mark.filterwarnings("ignore")
def test_functional_tensors():
    answers = []

    def ask(q, k, v):
        answers.append(agree(q, k, v))
        return q + 1

    torch.func.functionalize(ask)(*(torch.from_numpy(x) for x in random_qkv(6, 6)))
    assert answers == [open_vc_attn.Support(True)]


def test_devices_that_do_not_exist():
    from torch._subclasses.fake_tensor import FakeTensorMode

    missing = torch.cuda.device_count() + 7
    with FakeTensorMode(allow_non_fake_inputs=True):
        q = torch.empty(4, 1, 128, dtype=torch.bfloat16, device=f"cuda:{missing}")
        other = torch.empty(4, 1, 128, dtype=torch.bfloat16, device="xpu")
    support = is_supported(q, q, q)
    assert not support and support.reason
    assert not is_supported(q, torch.ones(4, 1, 128, dtype=torch.bfloat16), q)
    assert "xpu" in agree(other, other, other).reason


def test_distributed_tensors():
    """In a process of its own: groups of processes are global."""
    code = (
        "import os, torch, torch.distributed as dist\n"
        "from torch.distributed.tensor import DeviceMesh, Replicate, Shard, distribute_tensor\n"
        "from open_vc_attn import attention, is_supported\n"
        "store = dist.HashStore()\n"
        "dist.init_process_group('gloo', store=store, rank=0, world_size=1)\n"
        "mesh = DeviceMesh('cpu', [0]); x = torch.ones(6, 2, 128)\n"
        "for placement in (Replicate(), Shard(1)):\n"
        "    y = distribute_tensor(x, mesh, [placement]); support = is_supported(y, y, y)\n"
        "    assert not support\n"
        "    try: attention(y, y, y)\n"
        "    except NotImplementedError as error: assert str(error) == support.reason\n"
        "    assert 'to_local' in support.reason\n"
        "    assert is_supported(*[y.to_local()] * 3) and is_supported(*[y.full_tensor()] * 3)\n"
        "print('ok')"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300
    )
    assert result.stdout == "ok\n", result.stderr


def dispatch(q, k, v):
    """What a caller does with the answer."""
    return attention(q, k, v) if is_supported(q, k, v) else q * 2


def lengths(*sizes, channels=128):
    return [
        tuple(torch.ones(n, 2, channels) * (i + 1) for i, n in enumerate((queries, keys, keys)))
        for queries, keys in sizes
    ]


COMPILED = {
    "supported": lengths((6, 7), (8, 9), (10, 10), (11, 5)),
    "other lengths of k and v": [(q, k, v[1:]) for q, k, v in lengths((6, 7), (8, 9))],
    "narrow heads": lengths((6, 7), (8, 9), channels=64),
    "channel stride": [tuple(map(wide, x)) for x in lengths((6, 7), (8, 9))],
    "float64": [tuple(x.double() for x in y) for y in lengths((6, 7), (8, 9))],
    "requires grad": [tuple(x.requires_grad_() for x in y) for y in lengths((6, 7))],
    "supported, then not": [
        *lengths((6, 7), (8, 9)),
        *((q, k, v[1:]) for q, k, v in lengths((8, 9))),
    ],
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("members", COMPILED)
def test_compiled_with_fullgraph(members, dynamic):
    torch._dynamo.reset()
    compiled = torch.compile(dispatch, fullgraph=True, backend="eager", dynamic=dynamic)
    for inputs in COMPILED[members]:
        assert torch.equal(compiled(*inputs), dispatch(*inputs))


def test_the_answer_does_not_recompile():
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(dispatch, fullgraph=True, backend=counter, dynamic=True)
    for inputs in COMPILED["supported"]:
        compiled(*inputs)
    assert counter.frame_count == 1


@pytest.mark.parametrize("strict", [True, False])
def test_export(strict):
    class Model(torch.nn.Module):
        def forward(self, q, k, v):
            return dispatch(q, k, v)

    keys = torch.export.Dim("keys", min=2)
    first, second = lengths((6, 7), (6, 9))
    program = torch.export.export(
        Model(), first, dynamic_shapes={"q": {}, "k": {0: keys}, "v": {0: keys}}, strict=strict
    )
    assert "open_vc_attn.attention.default" in [str(node.target) for node in program.graph.nodes]
    assert torch.equal(program.module()(*second), attention(*second))


@pytest.mark.parametrize("form", [name for name in FORMS if "cut" in name or "freed" in name])
def test_tensors_beyond_their_storage_are_refused(form):
    q, k, v = (torch.from_numpy(x) for x in random_qkv(6, 6))
    operands = [FORMS[form](x) for x in (q, k, v)]
    if form == "slice before the cut":
        assert agree(*operands)
    else:
        assert "q: a storage of" in agree(*operands).reason
        with pytest.raises(ValueError, match="q: a storage of"):
            open_vc_attn.prepare_fp8(*operands)
        with pytest.raises(ValueError, match="q: a storage of"):
            open_vc_attn.exact_attention(*operands)


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_compiled_scale_that_becomes_invalid(dynamic):
    torch._dynamo.reset()

    def ask(x, scale):
        return x + 1 if is_supported(x, x, x, softmax_scale=scale) else x * 1

    compiled = torch.compile(ask, fullgraph=True, backend="eager", dynamic=dynamic)
    x = torch.ones(6, 2, 128)
    for scale in (0.1, 0.2, -1.0, 1e-50, 0.3, float("inf"), float("nan"), 1e300, 0.0):
        assert torch.equal(compiled(x, scale), ask(x, scale)), scale
