# SPDX-License-Identifier: BSD-3-Clause
"""The torch operators called by their names: they refuse what attention() refuses, in its words."""

import warnings

import pytest

from open_vc_attn import Numerics, attention, is_supported

torch = pytest.importorskip("torch", minversion="2.5")

OPTIONS = (False, None, "mid_window", *vars(Numerics()).values())
SCALED = (False, torch.tensor(0.1, dtype=torch.float64), *OPTIONS[2:])
OPERATORS = {
    "attention": OPTIONS,
    "attention_with_lse": OPTIONS,
    "attention_scale_tensor": SCALED,
    "attention_with_lse_scale_tensor": SCALED,
}
X = torch.linspace(-1, 1, 6 * 2 * 128).view(6, 2, 128)

REFUSED = {
    "float64": (X.double(),) * 3,
    "int32": (X.int(),) * 3,
    "bool": (X > 0,) * 3,
    "complex": (X + 0j,) * 3,
    "float8": (X.to(torch.float8_e4m3fn),) * 3,
    "types": (X, X.half(), X),
    "float64 of v": (X, X, X.double()),
    "q without batch": (X, X[None], X[None]),
    "v without batch": (X[None], X[None], X),
    "two axes": (X[0],) * 3,
    "five axes": (X[None, None],) * 3,
    "no axes": (X[0, 0, 0],) * 3,
    "narrow heads": (X[..., :60],) * 3,
    "no tokens": (X[:0],) * 3,
    "no keys": (X, X[:0], X[:0]),
    "heads": (X[:, :1], X, X),
    "key lengths": (X, X, X[1:]),
}


def words_of(operands):
    with pytest.raises((NotImplementedError, TypeError, ValueError)) as refusal:
        attention(*operands)
    return str(refusal.value)


@pytest.mark.parametrize("form", REFUSED)
@pytest.mark.parametrize("name", OPERATORS)
def test_operands_are_refused_as_by_attention(name, form):
    operator = getattr(torch.ops.open_vc_attn, name)
    operands = REFUSED[form]
    with pytest.raises((NotImplementedError, TypeError, ValueError)) as refusal:
        operator(*operands, *OPERATORS[name])
    assert str(refusal.value) == words_of(operands)


@pytest.mark.parametrize("form", REFUSED)
def test_fake_kernels_refuse_the_same(form):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        operands = [mode.from_tensor(x) for x in REFUSED[form]]
        with pytest.raises((NotImplementedError, TypeError, ValueError)):
            torch.ops.open_vc_attn.attention(*operands, *OPTIONS)


@pytest.mark.parametrize("scale", [0.0, -1.0, 1e-50, 1e-40, 1e38, 1e50, float("nan"), float("inf")])
def test_scales_are_refused(scale):
    for name in ("attention", "attention_with_lse"):
        options = (False, scale, *OPTIONS[2:])
        with pytest.raises(ValueError, match=r"softmax_scale: .*; expected"):
            getattr(torch.ops.open_vc_attn, name)(X, X, X, *options)
        tensor = (False, torch.tensor(scale, dtype=torch.float64), *OPTIONS[2:])
        with pytest.raises(ValueError, match=r"softmax_scale: .*; expected"):
            getattr(torch.ops.open_vc_attn, name + "_scale_tensor")(X, X, X, *tensor)


BATCHES = {
    "first axis": (0, (3, 6, 2, 128)),
    "second axis": (1, (6, 3, 2, 128)),
    "last axis": (-1, (6, 2, 128, 3)),
    "of batches": (0, (3, 1, 6, 2, 128)),
}


@pytest.mark.parametrize("items", [0, 1, 3])
@pytest.mark.parametrize("form", BATCHES)
@pytest.mark.parametrize("return_lse", [False, True])
def test_vmap(form, items, return_lse):
    axis, shape = BATCHES[form]
    shape = tuple(items if size == 3 else size for size in shape)
    x = torch.randn(shape)
    if axis == -1:  # channels have to be contiguous
        x = torch.randn(items, *shape[:-1]).movedim(0, -1)
    keys = X[:4] if x.dim() == 4 else X[None]
    answers = []

    def call(q, k):
        answers.append(is_supported(q, k, k))
        out = attention(q, k, k, return_lse=return_lse)
        return out if return_lse else (out,)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mapped = torch.vmap(call, in_dims=(axis, None))(x, keys)
    assert answers[0]
    each = [call(item, keys) for item in x.unbind(axis)]
    assert mapped[0].shape == x.movedim(axis, 0).shape
    for found, parts in zip(mapped, zip(*each, strict=True), strict=False):
        assert torch.equal(found, torch.stack(parts))
    if return_lse:
        *outer, queries, heads, _ = mapped[0].shape
        assert mapped[1].shape == (*outer, heads, queries)


@pytest.mark.parametrize("form", ["float64", "narrow heads", "no tokens"])
@pytest.mark.parametrize("items", [0, 2])
def test_vmap_refuses_the_same(form, items):
    operands = [torch.stack([x] * 2)[:items] for x in REFUSED[form]]
    with pytest.raises((NotImplementedError, TypeError, ValueError), match="q: "):
        torch.vmap(attention)(*operands)
