# SPDX-License-Identifier: BSD-3-Clause
"""attention() leaves torch's operator out where nothing would see it, and only there."""

from contextlib import nullcontext

import pytest
from conftest import random_qkv

from open_vc_attn import attention

torch = pytest.importorskip("torch", minversion="2.4")

from open_vc_attn import _torch_arrays, _torch_op  # noqa: E402 - needs torch

TORCH = _torch_arrays.TORCH

tells_who_watches = pytest.mark.skipif(
    _torch_arrays._PLAIN_KEYS is None, reason="this torch does not tell who watches a call"
)

OPTIONS = {"causal": True, "softmax_scale": 0.1, "numerics": {"rotation": "always"}}


def tensors(queries=20, keys=30, batch=2, dtype=torch.bfloat16):
    return tuple(torch.from_numpy(x).to(dtype) for x in random_qkv(queries, keys, batch=batch))


@pytest.fixture
def operator_calls(monkeypatch):
    """The arguments of every call that attention() hands to the operator."""
    calls = []
    call = _torch_op.call

    def record(*args):
        calls.append(args)
        return call(*args)

    monkeypatch.setattr(_torch_op, "call", record)
    return calls


def bits(tensor):
    return tensor.contiguous().view(torch.uint8)


@tells_who_watches
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize("options", [{}, OPTIONS])
def test_same_bits_as_the_operator(monkeypatch, operator_calls, dtype, batch, options):
    inputs = tensors(dtype=dtype, batch=batch)
    direct = attention(*inputs, return_lse=True, **options)
    alone = attention(*inputs, **options)
    assert not operator_calls
    monkeypatch.setattr(type(TORCH), "can_skip_dispatcher", lambda *_: False)
    through_operator = attention(*inputs, return_lse=True, **options)
    assert len(operator_calls) == 1
    wanted = (*through_operator, through_operator[0])
    for found, expected in zip((*direct, alone), wanted, strict=True):
        assert (found.shape, found.stride(), found.dtype) == (
            expected.shape,
            expected.stride(),
            expected.dtype,
        )
        assert torch.equal(bits(found), bits(expected))


@tells_who_watches
@pytest.mark.parametrize(
    "context", [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu"), nullcontext]
)
def test_usual_calls_are_direct(operator_calls, context):
    with context():
        q, k, v = tensors()
        heads_first = q.transpose(1, 2).contiguous().transpose(1, 2)
        assert attention(q, k, v).is_contiguous()
        assert attention(heads_first, k[:, ::2], v[:, ::2]).is_contiguous()
        assert attention(q, k[:, :, :1].expand_as(k), v).is_contiguous()
    assert not operator_calls


class Functions(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def dispatches():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Dispatches(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    return Dispatches()


class Subclass(torch.Tensor):
    pass


def on_fake_tensors(q, k, v):
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()
    return attention(*(mode.from_tensor(x) for x in (q, k, v)))


def inside(context):
    def call(q, k, v):
        with context():
            return attention(q, k, v)

    return call


WATCHERS = {
    "function mode": inside(Functions),
    "device": inside(lambda: torch.device("cpu")),
    "dispatch mode": inside(dispatches),
    "profiler": inside(torch.autograd.profiler.profile),
    "fake": on_fake_tensors,
    "negated": lambda q, k, v: attention(q, torch._neg_view(-k), v),
    "functionalized": torch.func.functionalize(attention),
    "mapped": torch.vmap(attention),
    "mapped elsewhere": lambda q, k, v: torch.vmap(lambda _: attention(q, k, v))(q)[0],
    "subclass": lambda q, k, v: attention(q, k.as_subclass(Subclass), v),
    "subclasses": lambda *inputs: attention(*(x.as_subclass(Subclass) for x in inputs)),
    "parameter": lambda q, k, v: attention(q, k, torch.nn.Parameter(v)),
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("watcher", WATCHERS)
def test_watched_calls_reach_the_operator(operator_calls, watcher):
    with torch.no_grad():
        inputs = tensors()
        out = WATCHERS[watcher](*inputs)
        assert len(operator_calls) == 1
        assert out.shape == inputs[0].shape
        if watcher != "fake":
            assert torch.equal(bits(torch.Tensor(out)), bits(attention(*inputs)))


def test_profiler_names_the_operator():
    inputs = tensors()
    attention(*inputs)
    with torch.profiler.profile() as profile:
        attention(*inputs)
    assert "open_vc_attn::attention" in [event.name for event in profile.events()]


@pytest.mark.filterwarnings("ignore")
def test_traces_contain_the_operator():
    from torch.fx.experimental.proxy_tensor import make_fx

    def attend(q, k, v):
        return attention(q, k, v)

    inputs = tensors()
    graph = make_fx(attend)(*inputs).graph
    assert "open_vc_attn.attention.default" in [str(node.target) for node in graph.nodes]
    traced = torch.jit.trace(attend, inputs)
    assert "open_vc_attn::attention" in str(traced.graph)
    others = tensors(keys=50)
    assert torch.equal(traced(*others), attention(*others))


@tells_who_watches
def test_grad_is_refused_by_the_operator_path_too(operator_calls):
    q, k, v = tensors(dtype=torch.float32)
    v.requires_grad_()
    with pytest.raises(ValueError, match="v: requires grad"):
        attention(q, k, v)
    with torch.no_grad():
        attention(q, k, v)
    assert not operator_calls


def test_versions_of_torch_that_hide_the_dispatch_keys(monkeypatch, operator_calls):
    monkeypatch.setattr("open_vc_attn._torch_arrays._PLAIN_KEYS", None)
    attention(*tensors())
    assert len(operator_calls) == 1
