# SPDX-License-Identifier: BSD-3-Clause
"""No derivative of attention is 0 in silence: what torch would differentiate is refused."""

import dataclasses

import pytest
from conftest import random_qkv

import open_vc_attn
from open_vc_attn import is_supported

torch = pytest.importorskip("torch", minversion="2.4")

from torch.autograd import forward_ad  # noqa: E402 - needs torch

OPTIONS = (False, None, "mid_window", *dataclasses.astuple(open_vc_attn.Numerics()))


def tensors(batch=None, queries=6, keys=7):
    return tuple(torch.from_numpy(x) for x in random_qkv(queries, keys, batch=batch))


def operator(name):
    return lambda q, k, v: getattr(torch.ops.open_vc_attn, name)(q, k, v, *OPTIONS)


def first(call):
    return lambda *inputs: call(*inputs)[0]


ENTRIES = {
    "attention": open_vc_attn.attention,
    "attention_with_lse": first(lambda *x: open_vc_attn.attention(*x, return_lse=True)),
    "exact_attention": open_vc_attn.exact_attention,
    "attention_fp8": lambda *x: open_vc_attn.attention_fp8(open_vc_attn.prepare_fp8(*x)),
    "attention_v_repair": lambda *x: open_vc_attn.attention_v_repair(
        open_vc_attn.prepare_v_repair(*x, budget=0.3)
    ),
    "operator": operator("attention"),
    "operator_with_lse": first(operator("attention_with_lse")),
}
REFUSED = "derivative|wrapper of torch.func|a gradient is asked for"


def jvp(call, q, k, v):
    return torch.func.jvp(lambda x: call(x, k, v), (q,), (torch.ones_like(q),))


def jvp_of_values(call, q, k, v):
    return torch.func.jvp(lambda x: call(q, k, x), (v,), (torch.ones_like(v),))


def jacfwd(call, q, k, v):
    return torch.func.jacfwd(lambda x: call(q, x, v).sum(), randomness="same")(k)


def dual(call, q, k, v):
    with forward_ad.dual_level():
        return call(q, forward_ad.make_dual(k, torch.ones_like(k)), v)


def dual_without_grad(call, q, k, v):
    with torch.no_grad():
        return dual(call, q, k, v)


def dual_of_a_view(call, q, k, v):
    with forward_ad.dual_level():
        q = forward_ad.make_dual(q, torch.ones_like(q))
        return call(q.transpose(0, 1).contiguous().transpose(0, 1), k, v)


def vmap_of_jvp(call, q, k, v):
    return torch.vmap(lambda x: jvp(call, x, k, v))(torch.stack([q, q]))


def jvp_of_vmap(call, q, k, v):
    mapped = torch.vmap(call, in_dims=(0, None, None))
    return jvp(mapped, torch.stack([q, q]), k, v)


def jvp_of_jvp(call, q, k, v):
    return jvp(lambda *x: jvp(call, *x)[1], q, k, v)


def grad(call, q, k, v):
    return torch.func.grad(lambda x: call(x, k, v).sum())(q)


def vjp(call, q, k, v):
    return torch.func.vjp(lambda x: call(q, k, x), v)


def jacrev(call, q, k, v):
    return torch.func.jacrev(lambda x: call(x, k, v).sum())(q)


def vmap_of_grad(call, q, k, v):
    return torch.vmap(lambda x: grad(call, x, k, v))(torch.stack([q, q]))


def hessian(call, q, k, v):
    return torch.func.hessian(lambda x: call(x, k, v).sum())(q)


FORWARD = [
    jvp,
    jvp_of_values,
    jacfwd,
    dual,
    dual_without_grad,
    dual_of_a_view,
    vmap_of_jvp,
    jvp_of_vmap,
    jvp_of_jvp,
]
REVERSE = [grad, vjp, jacrev, vmap_of_grad, hessian]


# Entries that take numbers beside tensors, as functions of the number.
Q, K, V = tensors()
ARRAYS = [x.numpy() for x in (Q, K, V)]
NUMBERS = {
    "attention": lambda x: open_vc_attn.attention(Q, K, V, softmax_scale=x),
    "attention_with_lse": lambda x: open_vc_attn.attention(
        Q, K, V, softmax_scale=x, return_lse=True
    )[1],
    "exact_attention": lambda x: open_vc_attn.exact_attention(Q, K, V, softmax_scale=x),
    "prepare_fp8": lambda x: open_vc_attn.attention_fp8(
        open_vc_attn.prepare_fp8(Q, K, V, softmax_scale=x)
    ),
    "prepare_v_repair": lambda x: open_vc_attn.attention_fp8(
        open_vc_attn.prepare_v_repair(Q, K, V, budget=0.3, softmax_scale=x)
    ),
    "budget": lambda x: open_vc_attn.attention_fp8(
        open_vc_attn.prepare_v_repair(Q, K, V, budget=x)
    ),
    "numerics": lambda x: open_vc_attn.attention(Q, K, V, numerics={"score_error_target": x}),
    "Numerics": lambda x: open_vc_attn.attention(
        Q, K, V, numerics=open_vc_attn.Numerics(score_error_target=x)
    ),
    "numpy": lambda x: torch.from_numpy(open_vc_attn.attention(*ARRAYS, softmax_scale=x)),
    "operator": lambda x: torch.ops.open_vc_attn.attention_scale_tensor(
        Q, K, V, False, x, *OPTIONS[2:]
    ),
}


def dual_number(call, x):
    with forward_ad.dual_level():
        return call(forward_ad.make_dual(x, torch.ones_like(x)))


NUMBER_FORMS = {
    "requires grad": lambda call, x: call(x.requires_grad_()).sum().backward(),
    "parameter": lambda call, x: call(torch.nn.Parameter(x)).sum().backward(),
    "one element": lambda call, x: call(x.reshape(1, 1).requires_grad_()).sum().backward(),
    "dual": dual_number,
    "jvp": lambda call, x: torch.func.jvp(call, (x,), (torch.ones_like(x),)),
    "jacfwd": lambda call, x: torch.func.jacfwd(call)(x),
    "grad": lambda call, x: torch.func.grad(lambda y: call(y).sum())(x),
    "vjp": lambda call, x: torch.func.vjp(call, x)[1](torch.ones_like(Q)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("entry", NUMBERS)
@pytest.mark.parametrize("form", NUMBER_FORMS)
def test_differentiation_of_a_number_is_refused(form, entry):
    with pytest.raises((ValueError, NotImplementedError), match=REFUSED):
        NUMBER_FORMS[form](NUMBERS[entry], torch.tensor(0.3))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", NUMBER_FORMS)
@pytest.mark.parametrize("name", ["softmax_scale", "numerics"])
def test_is_supported_knows_of_numbers(name, form):
    answers = []

    def ask(x):
        value = x if name == "softmax_scale" else {"score_error_target": x}
        answers.append(is_supported(Q, K, V, **{name: value}))
        return x * torch.ones_like(Q)

    NUMBER_FORMS[form](ask, torch.tensor(0.3))
    assert answers and not any(answers)
    assert all(name in x.reason and "derivative" in x.reason for x in answers)


@pytest.mark.parametrize("entry", NUMBERS)
def test_tensors_that_nothing_differentiates_are_numbers(entry):
    x = torch.tensor(0.3, dtype=torch.float64)
    expected = NUMBERS[entry](x)
    parameter = torch.nn.Parameter(x)
    with torch.no_grad():
        assert torch.equal(NUMBERS[entry](parameter), expected)
    assert torch.equal(NUMBERS[entry](parameter.detach()), expected)
    if entry != "operator":
        assert torch.equal(NUMBERS[entry](0.3), expected)


def without_grad(call):
    def run(*inputs):
        with torch.no_grad():
            return call(*inputs)

    return run


def inference(call):
    def run(*inputs):
        with torch.inference_mode():
            return call(*inputs)

    return run


WAYS_OUT = {
    "grad, detach": (grad, lambda call: lambda x, k, v: call(x.detach(), k, v)),
    "grad, no_grad": (grad, without_grad),
    "grad, inference_mode": (grad, inference),
    "vjp, no_grad": (vjp, without_grad),
    "jvp, unpack_dual": (
        jvp,
        lambda call: lambda x, k, v: call(forward_ad.unpack_dual(x).primal, k, v),
    ),
    "jvp, inference_mode": (jvp, inference),
    "hessian, detach": (hessian, lambda call: lambda x, k, v: call(x.detach(), k, v)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("way", WAYS_OUT)
def test_what_the_refusals_advise_works(way, entry):
    transformation, follow = WAYS_OUT[way]
    q, k, v = tensors()
    expected = ENTRIES[entry](q, k, v)
    found = []

    def call(x, *others):
        out = follow(ENTRIES[entry])(x, *others)
        found.append(out)
        return out * 0 + x  # something to differentiate

    transformation(call, q, k, v)
    assert found
    for out in found:
        while torch._C._functorch.is_functorch_wrapped_tensor(out):
            out = torch._C._functorch.get_unwrapped(out)
        assert torch.equal(out.reshape(expected.shape), expected)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("entry", ENTRIES)
def test_a_derivative_of_an_outer_level_is_seen(entry):
    """The tensor of the inner level needs no gradient, but what it wraps does."""
    q, k, v = tensors()

    def outer(x):
        return torch.func.grad(
            lambda y: ENTRIES[entry](x + 0 * y.detach(), k, v).sum() * 0 + y.sum()
        )(x.detach()).sum()

    with pytest.raises((ValueError, NotImplementedError), match=REFUSED):
        torch.func.grad(outer)(q)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("transformation", [*FORWARD, *REVERSE])
def test_differentiation_is_refused(transformation, entry):
    with pytest.raises((ValueError, NotImplementedError), match=REFUSED):
        transformation(ENTRIES[entry], *tensors())


@pytest.mark.parametrize("transformation", [*FORWARD, *REVERSE])
def test_is_supported_knows(transformation):
    answers = []

    def ask(q, k, v):
        answers.append(is_supported(q, k, v))
        return q + k.sum() + v.sum()

    transformation(ask, *tensors())
    assert answers and not any(answers)
    assert all("derivative" in answer.reason for answer in answers)


@pytest.mark.parametrize("transformation", [jvp, dual, grad])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("entry", ["attention", "operator", "exact_attention", "attention_fp8"])
def test_compiled_differentiation_is_refused(transformation, backend, entry):
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda *inputs: transformation(ENTRIES[entry], *inputs), backend=backend
    )
    with pytest.raises(Exception, match=REFUSED):
        compiled(*tensors())


@pytest.mark.parametrize("entry", ENTRIES)
def test_what_is_not_differentiated_runs(entry):
    """Tangents elsewhere, primal parts, and modes without derivatives."""
    q, k, v = tensors()
    expected = ENTRIES[entry](q, k, v)
    with forward_ad.dual_level():
        other = forward_ad.make_dual(torch.ones_like(q), q)
        assert torch.equal(ENTRIES[entry](q, k, v), expected)
        assert forward_ad.unpack_dual(other).tangent is not None
        primal = forward_ad.unpack_dual(forward_ad.make_dual(q, torch.ones_like(q))).primal
        assert torch.equal(ENTRIES[entry](primal, k, v), expected)
        assert is_supported(primal, k, v)
        differentiated = forward_ad.make_dual(q, torch.ones_like(q))
        with torch.inference_mode():
            assert is_supported(differentiated, k, v)
            assert torch.equal(ENTRIES[entry](differentiated, k, v), expected)
