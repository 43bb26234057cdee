# SPDX-License-Identifier: BSD-3-Clause
"""The adapter of ComfyUI in ComfyUI itself: a tiny Wan of random weights through its sampler.

Runs where OPENVC_TEST_COMFYUI names a checkout whose requirements are installed (HACKING.md).
"""

import os
import sys

import pytest

torch = pytest.importorskip("torch", minversion="2.4")

from video_models import difference  # noqa: E402

from open_vc_attn import Policy, enable  # noqa: E402
from open_vc_attn.integrations import comfyui  # noqa: E402

CHECKOUT = os.environ.get("OPENVC_TEST_COMFYUI", "")
pytestmark = pytest.mark.skipif(not CHECKOUT, reason="OPENVC_TEST_COMFYUI names no checkout")

BLOCKS, STEPS, GUIDED = 4, 4, 2  # with guidance a step is two model calls
SHORT = Policy(min_keys=1, min_queries=1)
WAN = {
    "image_model": "wan2.1",
    "model_type": "t2v",
    "dim": 256,
    "ffn_dim": 256,
    "num_heads": 2,
    "num_layers": BLOCKS,
    "in_dim": 16,
    "out_dim": 16,
    "text_dim": 64,
    "freq_dim": 64,
    "patch_size": (1, 2, 2),
    "text_len": 16,
    "qk_norm": True,
    "cross_attn_norm": True,
    "eps": 1e-6,
    "window_size": (-1, -1),
}


@pytest.fixture(scope="module")
def patcher():
    sys.path.insert(0, CHECKOUT)
    import comfy.cli_args

    comfy.cli_args.args.cpu = True
    import comfy.model_base
    import comfy.model_patcher
    import comfy.supported_models

    config = comfy.supported_models.WAN21_T2V(WAN)
    config.unet_config = WAN
    config.set_inference_dtype(torch.bfloat16, None)
    torch.manual_seed(0)
    model = comfy.model_base.WAN21(config, device=torch.device("cpu"))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    cpu = torch.device("cpu")
    return comfy.model_patcher.ModelPatcher(model, cpu, cpu)


def sample(model):
    import comfy.sample

    latent = torch.zeros(1, 16, 3, 16, 16)
    noise = torch.randn(latent.shape, generator=torch.Generator().manual_seed(1))
    positive, negative = ([[fill(1, 16, 64), {}]] for fill in (torch.ones, torch.zeros))
    return comfy.sample.sample(
        model,
        noise,
        STEPS,
        2.0,
        "euler",
        "simple",
        positive,
        negative,
        latent,
        seed=3,
        disable_pbar=True,
    )


def test_sampler(patcher):
    expected = sample(patcher)
    clone = patcher.clone()
    switch = enable(
        clone, policy=Policy(min_keys=1, min_queries=1, first_steps=1, last_steps=1, first_layers=1)
    )
    assert 0 < difference(sample(clone), expected) < 0.01
    fp8 = [record for record in switch.calls if record.fp8]
    assert {record.layer for record in fp8} == {f"blocks.{i}.self_attn" for i in range(1, BLOCKS)}
    # ComfyUI may put the two halves of the guidance into one batch.
    calls = sum(record.count for record in fp8)
    assert calls in ((BLOCKS - 1) * (STEPS - 2), (BLOCKS - 1) * (STEPS - 2) * GUIDED)
    assert torch.equal(sample(patcher), expected)
    switch.disable()
    assert torch.equal(sample(clone), expected)


def test_function_by_name(patcher):
    from comfy.ldm.modules.attention import get_attention_function

    comfyui.register()
    expected = sample(patcher)
    clone = patcher.clone()
    function = get_attention_function("open_vc")
    options = clone.model_options["transformer_options"]
    options["optimized_attention_override"] = lambda _, *args, **kwargs: function(*args, **kwargs)
    assert torch.equal(sample(clone), expected)  # too short for the policy


def test_compiled(patcher):
    compile_model = pytest.importorskip("comfy_api.torch_helpers").set_torch_compile_wrapper
    clone = patcher.clone()
    with enable(clone, policy=SHORT) as switch:
        expected = sample(clone)
        switch.reset()
        compile_model(model=clone, backend="eager")
        assert torch.equal(sample(clone), expected)
        assert any(record.fp8 for record in switch.calls)
