# SPDX-License-Identifier: BSD-3-Clause
"""enable() on a double of the official Wan code, whose own needs CUDA and flash-attn."""

import sys
import types
import warnings

import pytest

torch = pytest.importorskip("torch", minversion="2.4")

from torch.nn.functional import scaled_dot_product_attention  # noqa: E402
from video_models import difference  # noqa: E402

from open_vc_attn import Policy, enable  # noqa: E402

SHORT = Policy(min_keys=1, min_queries=1)
HEADS, WIDTH = 2, 256


def flash_attention(
    q,
    k,
    v,
    q_lens=None,
    k_lens=None,
    dropout_p=0.0,
    softmax_scale=None,
    q_scale=None,
    causal=False,
    window_size=(-1, -1),
    deterministic=False,
    dtype=torch.bfloat16,
    version=None,
):
    """What Wan's function computes; q and k arrive in float32."""
    q, k, v = (x.to(dtype).transpose(1, 2) for x in (q, k, v))
    mask = None
    if k_lens is not None:
        mask = (torch.arange(k.shape[2]) < k_lens[:, None])[:, None, None]
    out = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=softmax_scale)
    return out.transpose(1, 2).float()


class SelfAttention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.v = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x, seq_lens, **arguments):
        q = x.unflatten(-1, (HEADS, 128)).float()
        v = self.v(x).unflatten(-1, (HEADS, 128))
        function = sys.modules[type(self).__module__].flash_attention
        return function(q=q, k=q, v=v, k_lens=seq_lens, **arguments).flatten(2).to(x.dtype)


class WanModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([SelfAttention(), SelfAttention()])

    def forward(self, x, seq_lens, **arguments):
        for block in self.blocks:
            x = x + block(x, seq_lens, **arguments)
        return x


@pytest.fixture
def wan(monkeypatch):
    """The modules wan.modules.attention and wan.modules.model."""
    for name in ("wan", "wan.modules", "wan.modules.attention", "wan.modules.model"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    for name in ("wan.modules.attention", "wan.modules.model"):
        sys.modules[name].flash_attention = flash_attention
    for cls in (SelfAttention, WanModel):
        monkeypatch.setattr(cls, "__module__", "wan.modules.model")
    return sys.modules["wan.modules.model"]


def model():
    torch.manual_seed(0)
    return WanModel().bfloat16().requires_grad_(False)


@pytest.mark.parametrize("lengths", [[70], [50], [70, 33]])
def test_lengths_of_keys_are_honoured(wan, lengths):
    target, other = model(), model()
    x = torch.randn(len(lengths), 70, WIDTH).bfloat16()
    lengths = torch.tensor(lengths)
    expected = target(x, lengths)
    with enable(target, policy=SHORT) as switch:
        found = target(x, lengths)
        assert 0 < difference(found, expected) < 0.05
        assert [(r.layer, r.count, r.fp8) for r in switch.calls] == [
            ("blocks.0", 1, True),
            ("blocks.1", 1, True),
        ]
        changed = x.clone()
        changed[0, lengths[0] :] = 9
        rows = slice(0, int(lengths[0]))
        # Padded queries belong to the blocks of others, whose scales they share.
        assert difference(target(changed, lengths)[0, rows], found[0, rows]) < 0.05
        assert torch.equal(other(x, lengths), expected)
        assert wan.flash_attention is not flash_attention
    assert wan.flash_attention is flash_attention
    assert torch.equal(target(x, lengths), expected)


def test_windows_and_lengths_of_queries_go_elsewhere(wan):
    target, x, lengths = model(), torch.randn(1, 70, WIDTH).bfloat16(), torch.tensor([70])
    expected = target(x, lengths)
    with enable(target, policy=SHORT) as switch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.equal(target(x, lengths, window_size=(8, 8)), expected)
        assert torch.equal(target(x, lengths, q_lens=lengths), expected)
        assert {r.reason for r in switch.calls} == {"window", "lengths of queries"}


def test_pipelines_and_their_experts(wan):
    pipeline = types.SimpleNamespace(
        low_noise_model=model(), high_noise_model=model(), device=torch.device("cpu")
    )
    x, lengths = torch.randn(1, 70, WIDTH).bfloat16(), torch.tensor([70])
    with enable(pipeline, policy=SHORT) as first:
        with enable(model(), policy=SHORT):
            pipeline.high_noise_model(x, lengths)
        pipeline.low_noise_model(x, lengths)
        names = [r.layer for r in first.calls if r.fp8]
        assert names == [
            *(f"low_noise_model.blocks.{i}" for i in range(2)),
            *(f"high_noise_model.blocks.{i}" for i in range(2)),
        ]
    assert wan.flash_attention is flash_attention


def test_compiled(wan):
    target, x, lengths = model(), torch.randn(1, 70, WIDTH).bfloat16(), torch.tensor([50])
    torch._dynamo.reset()
    with enable(target, policy=SHORT) as switch:
        expected = target(x, lengths)
        assert torch.equal(
            torch.compile(target, fullgraph=True, backend="eager")(x, lengths), expected
        )
        assert sum(r.count for r in switch.calls if r.fp8) == 4
