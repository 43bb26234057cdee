# SPDX-License-Identifier: BSD-3-Clause
"""The adapter of ltx-core on a double of its attention modules, or, where OPENVC_TEST_LTX names a
folder with the package ltx_core, on its own (HACKING.md)."""

import importlib
import os
import sys
import types

import pytest

torch = pytest.importorskip("torch", minversion="2.4")

from video_models import difference  # noqa: E402

from open_vc_attn import Policy, enable  # noqa: E402
from open_vc_attn.integrations._native import sdpa  # noqa: E402

FOLDER = os.environ.get("OPENVC_TEST_LTX", "")
SHORT = Policy(min_keys=1, min_queries=1)
HEADS = 2
FP8_ERROR = 0.08


def sdpa_of_merged(q, k, v, heads, mask=None):
    parts = [x.unflatten(-1, (heads, -1)) for x in (q, k, v)]
    if mask is not None and mask.dim() == 3:
        mask = mask.unsqueeze(1)
    return sdpa(*parts, mask=mask).flatten(-2)


class AttentionDouble(torch.nn.Module):
    """As in ltx-core: the function takes [B, S, H * D], the mask last."""

    def __init__(self, query_dim, heads, dim_head, two_functions):
        super().__init__()
        self.attention_function = sdpa_of_merged
        if two_functions:
            self.masked_attention_function = lambda q, k, v, heads, mask: sdpa_of_merged(
                q, k, v, heads, mask
            )
        self.two_functions, self.heads, self.dim_head = two_functions, heads, dim_head
        width = heads * dim_head
        self.to_q, self.to_k, self.to_v = (torch.nn.Linear(query_dim, width) for _ in range(3))
        self.to_out = torch.nn.Linear(width, query_dim)

    def forward(self, x, context=None, mask=None):
        context = x if context is None else context
        q, k, v = self.to_q(x), self.to_k(context), self.to_v(context)
        if not self.two_functions:
            out = self.attention_function(q, k, v, self.heads, mask)
        elif mask is None:
            out = self.attention_function(q, k, v, self.heads)
        else:
            out = self.masked_attention_function(q, k, v, self.heads, mask)
        return self.to_out(out)


class Model(torch.nn.Module):
    def __init__(self, attention, blocks=2):
        super().__init__()
        self.transformer_blocks = torch.nn.ModuleList()
        for _ in range(blocks):
            block = torch.nn.Module()
            block.attn1, block.audio_attn1 = attention(128), attention(64)
            block.other_attn1 = attention(256)
            self.transformer_blocks.append(block)

    def forward(self, x, mask=None):
        for block in self.transformer_blocks:
            x = x + block.attn1(x, mask=mask)
            x = x + block.audio_attn1(x) + block.other_attn1(x)
        return x


@pytest.fixture(params=["real"] if FOLDER else ["one function", "two functions"])
def make(request, monkeypatch):
    if FOLDER:
        monkeypatch.syspath_prepend(FOLDER)
        kind = importlib.import_module("ltx_core.model.transformer.attention").Attention
        attention = lambda size: kind(64, heads=HEADS, dim_head=size)  # noqa: E731
    else:
        monkeypatch.setitem(sys.modules, "ltx_core", types.ModuleType("ltx_core"))
        monkeypatch.setattr(AttentionDouble, "__module__", "ltx_core.model")
        two = request.param == "two functions"
        attention = lambda size: AttentionDouble(64, HEADS, size, two)  # noqa: E731

    def model(**arguments):
        torch.manual_seed(0)
        return Model(attention, **arguments).bfloat16().eval().requires_grad_(False)

    return model


def tokens(count=40):
    return torch.randn(1, count, 64, generator=torch.Generator().manual_seed(1)).bfloat16()


def test_video_and_audio_run_in_fp8_and_wide_heads_do_not(make):
    model, other, x = make(), make(), tokens()
    expected = model(x)
    with enable(model, policy=SHORT) as switch:
        found = model(x)
        assert 0 < difference(found, expected) < FP8_ERROR
        assert [(record.layer, record.count, record.fp8) for record in switch.calls] == [
            (f"transformer_blocks.{i}.{name}", 1, True)
            for i in range(2)
            for name in ("attn1", "audio_attn1")
        ]
        assert torch.equal(other(x), expected)
        with pytest.raises(RuntimeError, match="outside of its module"):
            model.transformer_blocks[0].attn1.attention_function(x, x, x, 1)
    assert torch.equal(model(x), expected)


@pytest.mark.parametrize(
    "mask, fp8",
    [
        (torch.arange(40)[None, None] < 30, True),
        ((torch.arange(40)[None, None] < 30).expand(1, 40, 40), True),
        (torch.zeros(1, 40, 40, dtype=torch.bfloat16), False),
    ],
)
@pytest.mark.filterwarnings("ignore:.*mask that differs")
def test_masks(make, mask, fp8):
    model, x = make(), tokens()
    expected = model(x, mask)
    with enable(model, policy=SHORT) as switch:
        found = model(x, mask)
        video = [record for record in switch.calls if record.layer.endswith(".attn1")]
        assert all(record.fp8 == fp8 for record in video) and video
        assert difference(found, expected) < FP8_ERROR


def test_compiled(make):
    from torch._dynamo.testing import CompileCounter

    model, x = make(), tokens()
    expected = model(x)
    counter = CompileCounter()
    torch._dynamo.reset()
    with enable(model, policy=SHORT) as switch:
        in_fp8 = model(x)
        compiled = torch.compile(model, backend=counter, fullgraph=not FOLDER)
        assert torch.equal(compiled(x), in_fp8)
        switch.policy = Policy()
        assert difference(compiled(x), expected) == 0


def test_enabling_again_and_functions_of_others(make):
    model, x = make(), tokens()
    expected = model(x)
    first, second = enable(model, policy=SHORT), enable(model)
    assert not first.enabled and torch.equal(model(x), expected)
    attention = model.transformer_blocks[0].attn1
    attention.attention_function = mine = lambda *arguments: sdpa_of_merged(*arguments)
    second.disable()
    assert attention.attention_function is mine


def test_a_model_of_wide_heads_is_refused(make):
    model = make()
    for block in model.transformer_blocks:
        block.attn1 = block.audio_attn1 = block.other_attn1
    with pytest.raises(ValueError, match="heads of 256 channels; expected a multiple of 8 up to"):
        enable(model)
