# SPDX-License-Identifier: BSD-3-Clause
"""The plugin of vLLM-Omni on a double of what it meets there."""

import sys
from pkgutil import resolve_name

import pytest

torch = pytest.importorskip("torch", minversion="2.4")

import vllm_omni_double as double  # noqa: E402
from video_models import difference  # noqa: E402

from open_vc_attn.integrations import _default, vllm_omni  # noqa: E402
from open_vc_attn.integrations._native import sdpa  # noqa: E402

GAUSSIAN_ERROR = 0.08
HEADS = 2


@pytest.fixture
def omni(monkeypatch):
    for name in ("_state", "_layers"):
        monkeypatch.setattr(_default, name, {})
    name = "open_vc_attn.integrations._vllm_omni_backend"
    monkeypatch.delitem(sys.modules, name, raising=False)
    found = double.install(monkeypatch)
    vllm_omni.register()
    vllm_omni.register()
    return found


@pytest.fixture
def impl(omni, monkeypatch):
    """Implementations as layers of vLLM-Omni make them."""

    def make(policy='{"min_keys": 1, "min_queries": 1}', head_size=128, **arguments):
        monkeypatch.setenv(_default.POLICY_VARIABLE, policy)
        path = omni[1].get_diffusion_attn_backend_cls("open_vc", head_size)
        backend = resolve_name(path)
        assert backend.get_name() == "OPEN_VC" and backend.supports_attention_mask(None)
        return backend.get_impl_cls()(
            **{
                "num_heads": HEADS,
                "head_size": head_size,
                "softmax_scale": head_size**-0.5,
                "causal": False,
                "num_kv_heads": None,
                "qkv_layout": "NHD",
                "prefix": "blocks.0.attn1",
                "backend_kwargs": None,
                "role": "self",
                "backend_explicit": True,
                **arguments,
            }
        )

    return make


def qkv(tokens=40, keys=None, size=128, batch=1):
    generator = torch.Generator().manual_seed(0)
    return tuple(
        torch.randn(batch, n, HEADS, size, generator=generator).bfloat16()
        for n in (tokens, keys or tokens, keys or tokens)
    )


def reasons():
    return [record.reason for record in _default.default_switch().calls]


def test_the_name_is_known(omni):
    backends = omni[0]
    assert backends["OPEN_VC"].get_class().get_name() == "OPEN_VC"
    assert [member.name for member in backends] == ["TORCH_SDPA", "OPEN_VC"]
    with pytest.raises(ValueError, match="Unknown diffusion attention backend"):
        backends["NOTHING"]


@pytest.mark.parametrize(
    "causal, size, key_heads", [(False, 128, 2), (True, 128, 2), (False, 64, 1)]
)
def test_forward(impl, causal, size, key_heads):
    q, k, v = qkv(size=size)
    k, v = k[:, :, :key_heads], v[:, :, :key_heads]
    found = impl(causal=causal, head_size=size, num_kv_heads=key_heads).forward(q, k, v)
    assert 0 < difference(found, sdpa(q, k, v, causal=causal)) < GAUSSIAN_ERROR
    assert reasons() == [""]


@pytest.mark.parametrize("kind", [torch.bool, torch.int64])
def test_masks_of_keys_are_trimmed(impl, kind):
    q, k, v = qkv(batch=2)
    valid = torch.tensor([30, 25])
    mask = torch.arange(40) < valid[:, None]
    found = impl().forward(q, k, v, double.AttentionMetadata(attn_mask=mask.to(kind)))
    expected = sdpa(q, k, v, mask=mask[:, None, None])
    assert 0 < difference(found, expected) < GAUSSIAN_ERROR
    assert reasons() == [""]


@pytest.mark.parametrize("with_mask", [False, True])
def test_length_of_the_keys_on_the_host(impl, with_mask):
    q, k, v = qkv()
    mask = torch.arange(40)[None] < 30 if with_mask else None
    metadata = double.AttentionMetadata(attn_mask=mask, extra={"valid_kv_length": 30, "other": 1})
    expected = sdpa(q, k[:, :30], v[:, :30])
    found = impl().forward(q, k, v, metadata)
    assert 0 < difference(found, expected) < GAUSSIAN_ERROR
    assert torch.equal(
        impl(head_size=128, prefix="x").dense.forward(q, k[:, :30], v[:, :30]), expected
    )
    assert metadata.extra["valid_kv_length"] == 30
    with pytest.raises(ValueError, match="valid_kv_length: 41 of 40 keys"):
        impl().forward(q, k, v, double.AttentionMetadata(extra={"valid_kv_length": 41}))


ADDITIVE = torch.zeros(1, 1, 40, 40, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    "reason, size, policy, metadata",
    [
        ("head size 256", 256, {}, None),
        ("mask that differs", 128, {}, {"attn_mask": ADDITIVE}),
        ("spans of full attention", 128, {}, {"full_attn_spans": [[(0, 20)]]}),
        ("policy: fewer than 4096 keys", 128, {"policy": "{}"}, {"extra": {"valid_kv_length": 30}}),
    ],
)
@pytest.mark.filterwarnings("ignore:.*not computed in FP8")
def test_other_backends_serve_the_rest(impl, reason, size, policy, metadata):
    q, k, v = qkv(size=size)
    metadata = None if metadata is None else double.AttentionMetadata(**metadata)
    found = impl(head_size=size, **policy).forward(q, k, v, metadata)
    keys = 30 if metadata is not None and metadata.extra else 40
    expected = sdpa(q, k[:, :keys], v[:, :keys], mask=getattr(metadata, "attn_mask", None))
    assert torch.equal(found, expected)
    (only,) = reasons()
    assert only.startswith(reason)


def test_policy_on_steps(impl, omni):
    attend = impl('{"min_keys": 1, "min_queries": 1, "first_steps": 1}')
    q, k, v = qkv()
    for index, count in ((0, 4), (1, 4), (3, 4), (None, None)):
        omni[2].denoise_step_idx, omni[2].total_denoise_steps = index, count
        attend.forward(q, k, v)
    counts = {record.reason: record.count for record in _default.default_switch().calls}
    assert counts == {"": 2, "policy: step": 1, "policy: no step is known": 1}


def test_options_of_other_backends_are_refused(impl):
    with pytest.raises(ValueError, match="OPEN_VC: options quant of the attention"):
        impl(backend_kwargs={"quant": 1})


def test_compiled(impl):
    q, k, v = qkv()
    attend = impl()
    expected = attend.forward(q, k, v)
    torch._dynamo.reset()
    run = torch.compile(lambda *x: attend.forward(*x), fullgraph=True, backend="eager")
    assert torch.equal(run(q, k, v), expected)
    _default.configure({"min_keys": 4096}, None, "test")
    assert torch.equal(run(q, k, v), sdpa(q, k, v))
