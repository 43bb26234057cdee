# SPDX-License-Identifier: BSD-3-Clause
"""Masks that hide keys, in switched models: served without those keys."""

import warnings

import pytest

torch = pytest.importorskip("torch", minversion="2.4")

from video_models import difference, model, tokens  # noqa: E402

from open_vc_attn import Policy, attention, enable  # noqa: E402
from open_vc_attn.integrations._native import sdpa  # noqa: E402

SHORT = Policy(min_keys=1, min_queries=1)
COUNT = 70
FP8_ERROR = 0.01


def first(*lengths):
    """The first keys of each item, [B, 1, 1, Skv]."""
    return (torch.arange(COUNT) < torch.tensor(lengths)[:, None])[:, None, None]


def without(*hidden):
    mask = torch.ones(1, 1, 1, COUNT, dtype=torch.bool)
    mask[..., list(hidden)] = False
    return mask


SERVED = {
    "the first keys": (1, first(40)),
    "all keys": (1, first(COUNT)),
    "first keys of each item": (3, first(40, COUNT, 1)),
    "the same for all items": (2, first(40)),
    "holes": (1, without(0, 5, 69)),
    "the same holes for all items": (2, without(3, 4)),
    "two axes": (1, without(2)[0, 0]),
    "spread over queries and heads": (1, first(40).expand(1, 2, COUNT, COUNT)),
    "other holes of each item": (2, torch.cat([without(0, 5, 69), without(1, 2)])),
}


@pytest.mark.parametrize("name", SERVED)
@pytest.mark.parametrize("compiled", [False, True])
def test_served(name, compiled):
    batch, mask = SERVED[name]
    target, x = model(blocks=1), tokens(COUNT, batch)
    expected = target(x, attn_mask=mask)
    with enable(target, policy=SHORT) as switch:
        run = target
        if compiled:
            torch._dynamo.reset()
            run = torch.compile(target, fullgraph=True, backend="eager")
        found = run(x, attn_mask=mask)
        assert 0 < difference(found, expected) < FP8_ERROR
        assert [(r.keys, r.count, r.fp8) for r in switch.calls] == [(COUNT, 1, True)]


def test_the_same_as_attention_over_the_valid_keys():
    target, x, mask = model(blocks=1), tokens(COUNT, 2), without(7, 69)
    valid = mask.flatten().nonzero().flatten()
    q, k, v = (y.unflatten(-1, (2, 128)) for y in target.blocks[0].attention.qkv(x).chunk(3, -1))
    out = attention(q, k[:, valid], v[:, valid])
    with enable(target, policy=SHORT):
        assert torch.equal(target(x, attn_mask=mask), x + out.flatten(2))


ELSEWHERE = {
    "differs between queries": torch.ones(COUNT, COUNT, dtype=torch.bool).tril(),
    "differs between heads": torch.stack([first(40)[0], first(30)[0]], 1),
    "additive": torch.ones(1, 1, 1, COUNT).bfloat16(),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_elsewhere(name):
    mask = ELSEWHERE[name]
    target, x = model(blocks=1), tokens(COUNT, 2)
    expected = target(x, attn_mask=mask)
    with enable(target, policy=SHORT) as switch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = target(x, attn_mask=mask)
        assert torch.equal(found.isnan(), expected.isnan())
        assert torch.equal(found.nan_to_num(), expected.nan_to_num())
        (record,) = switch.calls
        assert record.reason.startswith("mask"), record


def test_refuse():
    target, x = model(blocks=1), tokens(COUNT)
    expected = target(x, attn_mask=first(40))
    with (
        enable(target, policy=SHORT, masks="refuse"),
        pytest.warns(UserWarning, match="in FP8: mask"),
    ):
        assert torch.equal(target(x, attn_mask=first(40)), expected)


def test_a_mask_that_changes_in_place():
    target, x, mask = model(blocks=1), tokens(COUNT), first(40).clone()
    with enable(target, policy=SHORT):
        before = target(x, attn_mask=mask)
        mask[..., 30:] = False
        assert torch.equal(target(x, attn_mask=mask), target(x, attn_mask=first(30)))
        assert not torch.equal(target(x, attn_mask=mask), before)


def test_items_without_keys_are_zero():
    target, x = model(blocks=1), tokens(COUNT, 2)
    with enable(target, policy=SHORT) as switch:
        assert torch.equal(target(x, attn_mask=first(0, 0)), x)
        found = target(x, attn_mask=first(40, 0))
        assert torch.equal(found[1], x[1])
        assert torch.equal(found[:1], target(x[:1], attn_mask=first(40)))
        assert all(record.fp8 for record in switch.calls)


def test_nobody_looks_at_the_numbers(monkeypatch):
    """Reading them would wait for a GPU, and fail in a CUDA graph."""
    target, x, mask = model(blocks=2), tokens(COUNT, 2), first(40, 30)
    expected = target(x, attn_mask=mask)

    def refuse(*_):
        raise AssertionError("the host reads a number")

    for name in ("item", "tolist", "cpu", "numpy", "nonzero", "__bool__", "__int__"):
        monkeypatch.setattr(torch.Tensor, name, refuse)
    with enable(target, policy=SHORT):
        found = target(x, attn_mask=mask)
    monkeypatch.undo()
    assert 0 < difference(found, expected) < FP8_ERROR


@pytest.mark.parametrize(
    "arguments",
    [{}, {"causal": True}, {"scale": 0.2}, {"mask": first(40)}, {"mask": first(40).float()}],
)
@pytest.mark.parametrize("groups", [1, 2])
def test_lse_of_the_calls_that_go_elsewhere(arguments, groups):
    q, k, v = (y.unflatten(-1, (4, 64)) for y in tokens(COUNT, 3).split(1))
    k, v = k[:, :, : 4 // groups], v[:, :, : 4 // groups]
    out, lse = sdpa(q, k, v, return_lse=True, **arguments)
    torch.testing.assert_close(out, sdpa(q, k, v, **arguments), rtol=0.02, atol=0.02)
    k = k.repeat_interleave(groups, 2)
    scores = torch.einsum("bqhd,bkhd->bhqk", q.float(), k.float())
    scores *= arguments.get("scale", 64**-0.5)
    if "causal" in arguments:
        scores = scores.masked_fill(~torch.ones(COUNT, COUNT).tril().bool(), -torch.inf)
    if "mask" in arguments:
        mask = arguments["mask"]
        scores = (
            scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        )
    torch.testing.assert_close(lse, scores.logsumexp(-1), rtol=1e-3, atol=1e-3)


def test_native_lse_of_items_without_keys():
    """What serves a part of a ring in FP8's place: NaN would reach the sum of all parts."""
    q = torch.randn(2, COUNT, 2, 64)
    mask = first(40, 0)
    out, lse = sdpa(q, q, q, mask=mask, return_lse=True)
    torch.testing.assert_close(out[0], sdpa(q[:1], q[:1], q[:1], mask=mask[:1])[0])
    assert not out[1].any() and torch.isneginf(lse[1]).all() and lse[0].isfinite().all()
