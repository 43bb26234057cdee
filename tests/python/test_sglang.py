# SPDX-License-Identifier: BSD-3-Clause
"""The plugin of SGLang diffusion: on a double of what it meets there, or, where OPENVC_TEST_SGLANG
names a folder with the package sglang, in SGLang itself (HACKING.md)."""

import importlib
import itertools
import os
import sys
import types

import pytest

torch = pytest.importorskip("torch", minversion="2.4")

import sglang_double as double  # noqa: E402
from video_models import difference  # noqa: E402

from open_vc_attn.integrations import _default, sglang  # noqa: E402
from open_vc_attn.integrations._native import sdpa  # noqa: E402

FOLDER = os.environ.get("OPENVC_TEST_SGLANG", "")
GAUSSIAN_ERROR = 0.08
HEADS = 2
SHORT = {"min_keys": 1, "min_queries": 1}


def module(name):
    return importlib.import_module(f"{double.ROOT}.{name}")


@pytest.fixture
def server(monkeypatch):
    """SGLang after its plugins; starts a server with a configuration of this backend."""
    monkeypatch.setattr(_default, "_state", {})
    monkeypatch.setattr(_default, "_layers", {})
    if FOLDER:
        monkeypatch.syspath_prepend(FOLDER)
        distributed = module("distributed.parallel_state")  # without a group of processes
        monkeypatch.setattr(distributed, "get_ring_parallel_world_size", lambda: 1)
    else:
        double.install(monkeypatch)
        monkeypatch.delitem(sys.modules, "open_vc_attn.integrations._sglang_backend", raising=False)
    sglang.register()
    sglang.register()
    module("platforms.plugins").HookRegistry.apply_hooks()

    def start(config=None):
        arguments = types.SimpleNamespace(
            attention_backend="open_vc", attention_backend_config={"open_vc": config or {}}
        )
        module("server_args").set_global_server_args(arguments)

    return start


@pytest.fixture
def impl(server):
    """Implementations as layers of SGLang make them."""

    def make(config, head_size=128, prefix="blocks.0.attn1.impl", **arguments):
        server(config)
        member = module("platforms").AttentionBackendEnum["OPEN_VC"]
        path = module("platforms.cpu").CpuPlatform.get_attn_backend_cls_str(
            member, head_size, torch.bfloat16
        )
        folder, _, name = path.rpartition(".")
        backend = getattr(importlib.import_module(folder), name)
        assert backend.get_enum() is member and backend.supports_ring_rotation()
        scale = arguments.pop("softmax_scale", head_size**-0.5)
        return backend.get_impl_cls()(
            num_heads=HEADS,
            head_size=head_size,
            softmax_scale=scale,
            prefix=prefix,
            **{
                "num_kv_heads": None,
                "causal": False,
                "is_cross_attention": False,
                **arguments,
            },
        )

    return make


def qkv(tokens=40, keys=None, size=128, dtype=torch.bfloat16):
    generator = torch.Generator().manual_seed(0)
    return tuple(
        torch.randn(1, n, HEADS, size, generator=generator).to(dtype)
        for n in (tokens, keys or tokens, keys or tokens)
    )


def reasons():
    return [(record.layer, record.reason) for record in _default.default_switch().calls]


def test_names_are_known_and_change_nothing_else(server):
    server()
    cpu = module("platforms.cpu").CpuPlatform
    for other in (None, module("platforms").AttentionBackendEnum.TORCH_SDPA):
        assert cpu.get_attn_backend_cls_str(other, 128, torch.bfloat16) == double.SDPA
    stage = module("pipelines_core.stages.denoising").DenoisingStage
    parse = stage._parse_attention_backend_override
    assert parse(None, "open_vc") is module("platforms").AttentionBackendEnum["OPEN_VC"]
    assert parse(None, None) is None
    with pytest.raises(ValueError, match="nothing"):
        parse(None, "nothing")


@pytest.mark.parametrize(
    "causal, size, key_heads", [(False, 128, 2), (True, 128, 2), (False, 64, 1)]
)
def test_forward(impl, causal, size, key_heads):
    q, k, v = qkv(size=size)
    k, v = k[:, :, :key_heads], v[:, :, :key_heads]
    made = impl({"policy": SHORT}, causal=causal, head_size=size, num_kv_heads=key_heads)
    found = made.forward(q, k, v, None)
    assert 0 < difference(found, sdpa(q, k, v, causal=causal)) < GAUSSIAN_ERROR
    assert [reason for _, reason in reasons()] == [""]
    assert reasons()[0][0].endswith("blocks.0.attn1")


@pytest.mark.parametrize(
    "reason, tokens, size, arguments",
    [
        ("head size 256", (40, 40), 256, {}),
        ("policy: cross-attention", (40, 20), 128, {"is_cross_attention": True}),
        ("policy: layer", (40, 40), 128, {"prefix": "blocks.5.attn1.impl"}),
    ],
)
@pytest.mark.filterwarnings("ignore:.*head size 256")
def test_the_dense_backend_serves_the_rest(impl, reason, tokens, size, arguments):
    q, k, v = qkv(*tokens, size)
    policy = SHORT | {"layers": ["blocks.[0-4].*"]}
    found = impl({"policy": policy}, head_size=size, **arguments).forward(q, k, v, None)
    assert torch.equal(found, sdpa(q, k, v))
    assert [reason for _, reason in reasons()] == [reason]


def test_parts_of_a_ring_merge(impl):
    part = impl({"policy": SHORT})
    q, k, v = qkv(40, 80)
    halves = [
        part.forward(q, k[:, rows], v[:, rows], None, return_softmax_lse=True)
        for rows in (slice(0, 40), slice(40, 80))
    ]
    chunks = [
        part.forward_ring_kv_chunk(q[0], k[0, rows], v[0, rows])
        for rows in (slice(0, 40), slice(40, 80))
    ]
    for (out, lse), (chunk, chunk_lse) in zip(halves, chunks, strict=True):
        assert lse.shape == (1, HEADS, 40) and chunk_lse.shape == (HEADS, 40)
        assert torch.equal(out[0], chunk) and torch.equal(lse[0], chunk_lse)
    outs, lses = zip(*halves, strict=True)
    weights = torch.stack(lses).softmax(0).transpose(-1, -2).unsqueeze(-1)
    merged = (weights * torch.stack(outs)).sum(0)
    assert difference(merged, sdpa(q, k, v)) < GAUSSIAN_ERROR
    assert all(not reason for _, reason in reasons())


def test_lse_without_fp8(impl):
    q, k, v = qkv()
    out, lse = impl(None).forward(q, k, v, None, return_softmax_lse=True)
    expected, expected_lse = sdpa(q, k, v, return_lse=True)
    assert torch.equal(out, expected) and torch.equal(lse, expected_lse)
    chunk, chunk_lse = impl(None).forward_ring_kv_chunk(q[0], k[0], v[0])
    assert torch.equal(chunk, expected[0]) and torch.equal(chunk_lse, expected_lse[0])
    assert reasons()[0][1].startswith("policy: fewer than")


@pytest.mark.parametrize("padded", [False, True])
def test_packed_sequences(impl, padded):
    q, k, v = (x[0] for x in qkv(60))
    bounds = (0, 40, 60)
    attend = impl({"policy": SHORT}, packed_trailing_padding=padded)
    found = attend.forward_varlen(
        q, k, v, cu_seqlens=torch.tensor(bounds), max_seqlen=40, cu_seqlens_host=bounds
    )
    for start, end in itertools.pairwise(bounds):
        one = [x[None, start:end] for x in (q, k, v)]
        if padded and start:
            assert not found[start:end].any()
        else:
            assert 0 < difference(found[start:end], sdpa(*one)[0]) < GAUSSIAN_ERROR
    assert sum(record.count for record in _default.default_switch().calls) == 1


@pytest.mark.parametrize(
    "reason, config, bounds",
    [
        ("policy: ", None, (0, 40, 60)),
        ("packed sequences of very unlike lengths", {"policy": SHORT}, range(67)),
    ],
)
@pytest.mark.filterwarnings("ignore:.*packed sequences")
def test_packed_sequences_without_fp8(impl, reason, config, bounds):
    bounds = tuple(bounds)
    q, k, v = (x[0] for x in qkv(bounds[-1]))
    attend = impl(config)
    arguments = {
        "cu_seqlens": torch.tensor(bounds, dtype=torch.int32),
        "max_seqlen": 40,
        "cu_seqlens_host": bounds,
    }
    found = attend.forward_varlen(q, k, v, **arguments)
    assert torch.equal(found, attend.dense.forward_varlen(q, k, v, **arguments))
    ((_, only),) = reasons()
    assert only.startswith(reason)


def test_policy_on_steps(impl):
    attend = impl({"policy": SHORT | {"first_steps": 1, "last_steps": 1}})
    q, k, v = qkv()
    context = module("managers.forward_context").set_forward_context
    for index in range(4):
        batch = types.SimpleNamespace(timesteps=torch.ones(4), num_inference_steps=5)
        with context(current_timestep=index, attn_metadata=None, forward_batch=batch):
            attend.forward(q, k, v, None)
    attend.forward(q, k, v, None)
    counts = {record.reason: record.count for record in _default.default_switch().calls}
    assert counts == {"": 2, "policy: step": 2, "policy: no step is known": 1}


def test_options_and_their_errors(impl, monkeypatch):
    q, k, v = qkv(300)
    outs = [
        impl({"policy": SHORT, "numerics": numerics}).forward(q, k, v, None)
        for numerics in ({}, {"value_scale": "per_head"})
    ]
    assert not torch.equal(*outs)
    with pytest.raises(ValueError, match=r"attention_backend_config: open_vc: polici; expected"):
        impl({"polici": {}})
    with pytest.raises(TypeError, match=r"attention_backend_config: open_vc: policy: fist_steps"):
        impl({"policy": {"fist_steps": 1}})
    monkeypatch.setattr(_default, "_state", {})
    monkeypatch.setattr(_default, "_layers", {})
    monkeypatch.setenv(_default.POLICY_VARIABLE, '{"min_keys": 1, "min_queries": 1}')
    impl(None).forward(q, k, v, None)
    assert [reason for _, reason in reasons()] == [""]


def test_compiled(impl):
    q, k, v = qkv()
    attend = impl({"policy": SHORT})
    expected = attend.forward(q, k, v, None)
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, backend="eager")
    def run(q, k, v):
        return attend.forward(q, k, v, None)

    assert torch.equal(run(q, k, v), expected)
    _default.configure({"min_keys": 4096}, None, "test")
    assert torch.equal(run(q, k, v), sdpa(q, k, v))
