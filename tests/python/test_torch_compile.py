# SPDX-License-Identifier: BSD-3-Clause
"""The registered torch operators: compilation, fake tensors, export."""

import subprocess
import sys

import pytest
from conftest import random_qkv

import open_vc_attn
from open_vc_attn import Numerics, attention
from open_vc_attn._numerics import values_of

torch = pytest.importorskip("torch", minversion="2.4")

NUMERICS = Numerics(rotation="always", value_scale="per_head")
OPTIONS = (True, 0.1, "mid_window", *values_of(NUMERICS))


def tensors(queries=20, keys=30, batch=2, dtype=torch.bfloat16):
    return tuple(torch.from_numpy(x).to(dtype) for x in random_qkv(queries, keys, batch=batch))


def project_and_attend(x, weight):
    """What a model does: one projection, views of it as Q, K and V."""
    q, k, v = (x @ weight).unflatten(-1, (3, 2, 128)).unbind(-3)
    out, lse = attention(q, k, v, return_lse=True, softmax_scale=q.shape[-1] ** -0.5)
    return attention(out, k, v, causal=True, numerics={"rotation": "always"}) * 2, lse


def model_inputs(tokens):
    generator = torch.Generator().manual_seed(tokens)
    x = torch.randn(2, tokens, 64, generator=generator)
    return x, torch.randn(64, 768, generator=generator) / 8


COMPILATIONS = [
    (backend, mode) for backend in ("eager", "aot_eager") for mode in (False, True, None)
]


# Inductor is slow: one mode only.
@pytest.mark.parametrize("backend, dynamic", [*COMPILATIONS, ("inductor", True)])
def test_fullgraph(backend, dynamic):
    torch._dynamo.reset()
    compiled = torch.compile(project_and_attend, fullgraph=True, backend=backend, dynamic=dynamic)
    with torch.no_grad():
        for tokens in (40, 41, 57):
            inputs = model_inputs(tokens)
            out, lse = compiled(*inputs)
            expected, expected_lse = project_and_attend(*inputs)
            assert out.stride() == expected.stride()
            torch.testing.assert_close(out, expected, rtol=0.1, atol=0.1)
            torch.testing.assert_close(lse, expected_lse, rtol=0.01, atol=0.01)


def test_dynamic_shapes_do_not_recompile():
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(attention, fullgraph=True, backend=counter, dynamic=True)
    for queries, keys in ((20, 30), (21, 31), (50, 40)):
        assert torch.equal(compiled(*tensors(queries, keys)), attention(*tensors(queries, keys)))
    assert counter.frame_count == 1


CHANGING = {
    "scale": lambda q, k, v, x: attention(q, k, v, softmax_scale=x),
    "scale and LSE": lambda q, k, v, x: attention(q, k, v, softmax_scale=x, return_lse=True)[1],
    "computed scale": lambda q, k, v, x: attention(q, k, v, softmax_scale=x * 0.5 + 0.01),
    "scale as part of a model": lambda q, k, v, x: attention(q * x, k, v, softmax_scale=x) + x,
}


# The first compilation takes the number for a constant, the second leaves it open.
@pytest.mark.parametrize("function", CHANGING)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_scale_that_changes_compiles_twice_at_most(function, backend):
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend(backend)
    compiled = torch.compile(CHANGING[function], fullgraph=True, backend=counter)
    q, k, v = tensors(dtype=torch.float32)
    for scale in (0.1, 0.2, 0.3, 0.05, 0.7):
        expected = CHANGING[function](q, k, v, scale)
        torch.testing.assert_close(compiled(q, k, v, scale), expected, rtol=0.1, atol=0.1)
    assert counter.frame_count <= 2


@pytest.mark.parametrize("scale", [0.0, -1.0, 1e-300, float("inf"), float("nan")])
def test_a_scale_that_changes_is_still_checked(scale):
    torch._dynamo.reset()
    compiled = torch.compile(CHANGING["scale"], fullgraph=True, backend="eager")
    inputs = tensors()
    for good in (0.1, 0.2):
        compiled(*inputs, good)
    with pytest.raises(Exception, match="softmax_scale"):
        compiled(*inputs, scale)
    compiled(*inputs, 0.3)


def test_a_changing_mask_and_lengths_of_cross_attention():
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(
        lambda q, k, v, causal: attention(q, k, v, causal=causal), fullgraph=True, backend=counter
    )
    for causal in (True, False, True):
        for queries, keys in ((20, 30), (21, 31), (40, 40), (50, 5)):
            inputs = tensors(queries, keys)
            assert torch.equal(compiled(*inputs, causal), attention(*inputs, causal=causal))
    assert counter.frame_count <= 4


def test_first_call_may_be_a_compiled_one():
    """The operators register themselves while the first call is being traced."""
    code = (
        "import open_vc_attn, torch\n"
        "x = torch.ones(8, 2, 128)\n"
        "f = torch.compile(lambda x: open_vc_attn.attention(x, x, x), fullgraph=True, "
        "backend='eager')\n"
        "print(torch.equal(f(x), open_vc_attn.attention(x, x, x)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300
    )
    assert result.stdout == "True\n", result.stderr


def test_refusals_while_tracing():
    torch._dynamo.reset()
    q, k, v = tensors()
    compiled = torch.compile(attention, fullgraph=True, backend="eager")
    with pytest.raises(Exception, match="requires grad"):
        compiled(q.clone().requires_grad_(), k, v)
    with pytest.raises(Exception, match="softmax_scale"):
        compiled(q, k, v, softmax_scale=-1.0)


def test_preparation_breaks_the_graph_and_works():
    torch._dynamo.reset()

    def two_calls(q, k, v):
        prepared = open_vc_attn.prepare_fp8(q * 2, k, v)
        return open_vc_attn.attention_fp8(prepared) + 1

    inputs = tensors()
    compiled = torch.compile(two_calls, backend="eager")
    assert torch.equal(compiled(*inputs), two_calls(*inputs))


def operators():
    attention(*tensors())
    return torch.ops.open_vc_attn


def test_fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    operators()
    with FakeTensorMode():
        q = torch.empty(2, 5, 70, 128, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
        k = torch.empty(2, 90, 5, 128, device="cuda", dtype=torch.bfloat16)
        out, lse = attention(q, k, k, return_lse=True)
        single = attention(q[0], k[0], k[0])
    assert (out.shape, out.dtype, out.device.type) == (q.shape, q.dtype, "cuda")
    assert out.is_contiguous() and single.is_contiguous()
    assert (lse.shape, lse.dtype) == ((2, 5, 70), torch.float32)
    assert single.shape == (70, 5, 128)


@pytest.mark.parametrize("name", ["attention", "attention_with_lse"])
@pytest.mark.parametrize("scale", ["number", "tensor"])
@pytest.mark.parametrize("batch", [None, 2])
def test_opcheck(name, scale, batch):
    q, k, v = tensors(batch=batch)
    options = OPTIONS
    if scale == "tensor":
        name += "_scale_tensor"
        options = (OPTIONS[0], torch.tensor(OPTIONS[1], dtype=torch.float64), *OPTIONS[2:])
    strided = q.transpose(-2, -3).contiguous().transpose(-2, -3)
    for query in (q, strided):
        torch.library.opcheck(getattr(operators(), name), (query, k, v, *options))


def test_options_reach_the_operator():
    inputs = tensors()
    out = operators().attention(*inputs, *OPTIONS)
    expected = attention(*inputs, causal=True, softmax_scale=0.1, numerics=NUMERICS)
    assert torch.equal(out, expected)
    assert not torch.equal(out, attention(*inputs, causal=True, softmax_scale=0.1))


@pytest.mark.parametrize("numerics", [{"rotation": "never"}, {"smooth_values": False}, None])
def test_numerics_are_made_while_compiling(numerics):
    def function(q, k, v):
        return attention(q, k, v, numerics=numerics and {**numerics})

    inputs = tensors()
    assert torch.equal(
        torch.compile(function, backend="eager", fullgraph=True)(*inputs), function(*inputs)
    )


def test_export():
    class Model(torch.nn.Module):
        def forward(self, q, k, v):
            return attention(q, k, v)

    queries = torch.export.Dim("queries", min=2)
    program = torch.export.export(
        Model(), tensors(), dynamic_shapes={"q": {1: queries}, "k": {}, "v": {}}
    )
    inputs = tensors(queries=33)
    assert torch.equal(program.module()(*inputs), attention(*inputs))
    names = [str(node.target) for node in program.graph.nodes]
    assert "open_vc_attn.attention.default" in names


def test_no_gradient_flows_silently():
    q, k, v = tensors(dtype=torch.float32)
    q.requires_grad_()
    out = operators().attention(q, k, v, *OPTIONS)
    with pytest.raises(NotImplementedError, match="has no backward"):
        out.sum().backward()


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap():
    q, k, v = tensors(batch=3)
    assert torch.equal(torch.vmap(attention)(q, k, v), attention(q, k, v))
