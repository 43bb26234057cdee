# SPDX-License-Identifier: BSD-3-Clause
"""Backends of frameworks that have a registry of attention functions: xDiT and LightX2V, on
doubles of these registries."""

import enum
import sys
import types

import pytest

torch = pytest.importorskip("torch", minversion="2.4")

from video_models import difference  # noqa: E402

from open_vc_attn.integrations import _default, lightx2v, xfuser  # noqa: E402
from open_vc_attn.integrations._native import sdpa  # noqa: E402

GAUSSIAN_ERROR = 0.08
HEADS, TOKENS = 2, 40


def put(monkeypatch, name, **values):
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        path = ".".join(parts[:end])
        if path not in sys.modules:
            module = types.ModuleType(path)
            module.__path__ = []
            monkeypatch.setitem(sys.modules, path, module)
            if end > 1:
                setattr(sys.modules[path.rpartition(".")[0]], parts[end - 1], module)
    vars(sys.modules[name]).update(values)
    return sys.modules[name]


@pytest.fixture(autouse=True)
def short_calls(monkeypatch):
    for name in ("_state", "_layers"):
        monkeypatch.setattr(_default, name, {})
    monkeypatch.setenv(_default.POLICY_VARIABLE, '{"min_keys": 1, "min_queries": 1}')


def qkv(batch=1, size=128):
    generator = torch.Generator().manual_seed(0)
    shape = (batch, TOKENS, HEADS, size)
    return [torch.randn(shape, generator=generator).bfloat16() for _ in range(3)]


def reasons():
    return [record.reason for record in _default.default_switch().calls]


@pytest.fixture
def xdit(monkeypatch):
    registry = {}
    backends = put(
        monkeypatch,
        "xfuser.core.distributed.attention_backend",
        AttentionBackendType=enum.Enum("AttentionBackendType", {"SDPA": "SDPA", "FLASH": "FA"}),
        ATTENTION_FUNCTION_REGISTRY=registry,
        register_attention_function=lambda kind: lambda call: registry.setdefault(kind, call),
        get_ring_parallel_world_size=lambda: 1,
    )
    xfuser.register()
    xfuser.register()
    return backends


def attend_in_xdit(backends, q, k, v, attention_kwargs=None, causal=False):
    function = backends.ATTENTION_FUNCTION_REGISTRY[backends.AttentionBackendType["OPEN_VC"]]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    out, lse = function(q, k, v, dropout_p=0.0, is_causal=causal, attention_kwargs=attention_kwargs)
    return out.transpose(1, 2), lse


@pytest.mark.parametrize("causal", [False, True])
def test_xdit(xdit, causal):
    q, k, v = qkv()
    found, lse = attend_in_xdit(xdit, q, k, v, causal=causal)
    assert 0 < difference(found, sdpa(q, k, v, causal=causal)) < GAUSSIAN_ERROR
    assert lse is None and reasons() == [""]


def test_xdit_ring(xdit, monkeypatch):
    monkeypatch.setattr(xdit, "get_ring_parallel_world_size", lambda: 2)
    q, k, v = qkv()
    _default.default_switch().policy = _default.Policy(min_keys=2 * TOKENS, min_queries=2 * TOKENS)
    found, lse = attend_in_xdit(xdit, q, k, v)
    expected, expected_lse = sdpa(q, k, v, return_lse=True)
    assert 0 < difference(found, expected) < GAUSSIAN_ERROR
    assert lse.shape == expected_lse.shape and (lse - expected_lse).abs().max() < 0.2
    _default.default_switch().policy = _default.Policy()
    found, lse = attend_in_xdit(xdit, q, k, v)
    assert torch.equal(found, expected) and torch.equal(lse, expected_lse)


def test_xdit_masks(xdit):
    q, k, v = qkv(batch=2)
    valid = torch.arange(TOKENS) < torch.tensor([30, 25])[:, None]
    mask = valid[:, None, None]
    expected = sdpa(q, k, v, mask=mask)
    packed = {"indices_k": valid.flatten().nonzero().flatten(), "cu_seqlens_k": None}
    for arguments in ({"attn_mask": mask}, packed):
        found, _ = attend_in_xdit(xdit, q, k, v, arguments)
        assert 0 < difference(found, expected) < GAUSSIAN_ERROR
    _default.default_switch().policy = _default.Policy()
    assert torch.equal(attend_in_xdit(xdit, q, k, v, packed)[0], expected)


class Register(dict):
    def __call__(self, name):
        def add(kind):
            assert name not in self, f"{name} already exists"
            self[name] = kind
            return kind

        return add


@pytest.fixture
def weight(monkeypatch):
    class AttnWeightTemplate:
        def __init__(self, weight_name):
            raise AssertionError

        def load(self, weight_dict):
            return "nothing"

    register = Register(torch_sdpa=None)
    put(monkeypatch, "lightx2v.common.ops.attn.template", AttnWeightTemplate=AttnWeightTemplate)
    put(monkeypatch, "lightx2v.utils.registry_factory", ATTN_WEIGHT_REGISTER=register)
    lightx2v.register()
    lightx2v.register()
    made = register["open_vc"]()
    assert made.config == {} and made.load({}) == "nothing"
    return made


@pytest.mark.parametrize("batch, axes", [(1, 3), (1, 4), (2, 4)])
def test_lightx2v(weight, batch, axes):
    q, k, v = qkv(batch)
    expected = sdpa(q, k, v).flatten(-2).flatten(0, 1)
    bounds = torch.arange(0, (batch + 1) * TOKENS, TOKENS)
    arguments = {"cu_seqlens_q": bounds, "cu_seqlens_kv": bounds, "max_seqlen_q": TOKENS}
    operands = [x[0] if axes == 3 else x for x in (q, k, v)]
    found = weight.apply(*operands, **arguments, max_seqlen_kv=TOKENS, scheduler=None)
    assert found.shape == expected.shape
    assert 0 < difference(found, expected) < GAUSSIAN_ERROR
    _default.default_switch().policy = _default.Policy()
    assert torch.equal(weight.apply(*operands, **arguments), expected)


@pytest.mark.filterwarnings("ignore:.*mask that differs")
def test_lightx2v_arguments(weight):
    q, k, v = qkv()
    bias = torch.randn(1, 1, TOKENS, TOKENS)
    found = weight.apply(q, k, v, attn_mask=bias, softmax_scale=0.05)
    expected = sdpa(q, k, v, mask=bias.bfloat16(), scale=0.05)
    assert torch.equal(found, expected[0].flatten(-2))
    assert reasons()[0].startswith("mask that differs")


def test_lightx2v_part_of_a_ring(weight):
    q, k, v = (x[0] for x in qkv())
    out, lse = weight.apply_with_lse(q, k, v, softmax_scale=0.05)
    expected, expected_lse = sdpa(q[None], k[None], v[None], scale=0.05, return_lse=True)
    assert out.shape == (TOKENS, HEADS * 128) and lse.shape == (TOKENS, HEADS)
    assert 0 < difference(out, expected[0].flatten(-2)) < GAUSSIAN_ERROR
    assert (lse - expected_lse[0].T).abs().max() < 0.2
